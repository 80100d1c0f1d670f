// The demo's web service: answers with what it knows of itself and of its neighbour.
const http = require("node:http");
const os = require("node:os");

http
  .createServer((req, res) => {
    if (req.url !== "/") return res.writeHead(404).end("nothing here\n");
    http
      .get("http://api:8000/version", (api) => {
        let text = "";
        api.on("data", (d) => (text += d));
        api.on("end", () => res.end(`web on ${os.hostname()}, api says: ${text}`));
      })
      .on("error", (err) => res.writeHead(502).end(`api does not answer: ${err.message}\n`));
  })
  .listen(3000, () => console.log("web listens on 3000"));
