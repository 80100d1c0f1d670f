// What users of the official JavaScript SDK see: a call whose connection is cut in the
// middle, one that is withdrawn, several at once with progress. It speaks to the test in
// lines: what it has come to on stdout, and it goes on when the test has done its part.
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";

const { MODULES, URL_, KEY } = process.env;
const from = (path) => import(pathToFileURL(`${MODULES}/@modelcontextprotocol/sdk/dist/esm/client/${path}`));
const { Client } = await from("index.js");
const { StreamableHTTPClientTransport } = await from("streamableHttp.js");

const say = (line) => console.log(line);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = () => lines.next();

const client = new Client({ name: "sdk", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(URL_), { requestInit: { headers: { Authorization: `Bearer ${KEY}` } } }));
await client.listTools(); // from here on results are held against the declared schemas
const { structuredContent: box } = await client.callTool({ name: "sandbox_start", arguments: {} });
const exec = (cmd, options) => client.callTool({ name: "sandbox_exec", arguments: { id: box.id, cmd } }, undefined, { timeout: 20000, ...options });

let primed = false;
const cut = exec("cut", { onresumptiontoken: () => primed || ((primed = true), say("primed")) });
await told();
say("answer " + (await cut).structuredContent.stdout);

const stop = new AbortController();
const withdrawn = exec("withdrawn", { signal: stop.signal }).catch((err) => err);
await told();
stop.abort("no longer wanted");
say("withdrawn " + ((await withdrawn) instanceof Error));

let heard = 0;
const several = [0, 1, 2, 3, 4].map((i) => exec(`several-${i}`, { onprogress: () => ++heard === 20 && say("heard") }));
say("several " + (await Promise.all(several)).map((r) => r.structuredContent.stdout).join());

const refused = await exec("");
say("refused " + refused.isError + " " + JSON.parse(refused.content[0].text).code);
await client.close();
process.exit(); // stdin would keep it
