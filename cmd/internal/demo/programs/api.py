"""The demo's API service: says which version it is, and whether its secret came along."""

import hashlib
import http.server
import os


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        token = hashlib.sha256(os.environ.get("DEMO_TOKEN", "").encode()).hexdigest()[:12]
        body = f"box version, token {token}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    print("api listens on 8000", flush=True)
    http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
