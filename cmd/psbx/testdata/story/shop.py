# A shop that wants to know who comes: a page with a login, and one behind it.
import http.server, urllib.parse

LOGIN = '''<!doctype html><meta charset="utf-8"><title>Sign in</title>
<style>body{margin:0;background:#2a6fdb;font:28px sans-serif;color:#fff;text-align:center}
form{position:fixed;left:240px;top:200px;width:800px}input{display:block;width:700px;height:60px;margin:20px auto;font:28px sans-serif}</style>
<form method="post"><p>The shop</p><input name="name" placeholder="name"><input name="word" type="password" placeholder="password"><button style="font:28px sans-serif">Sign in</button></form>'''
INSIDE = '''<!doctype html><meta charset="utf-8"><title>Welcome</title>
<style>body{margin:0;background:#1b9e4b;font:40px sans-serif;color:#fff;text-align:center;padding-top:300px}</style>
<p>Welcome, %s. Your basket is waiting.</p>'''


class Shop(http.server.BaseHTTPRequestHandler):
    def page(self, text, status=200, **headers):
        body = text.encode()
        self.send_response(status)
        for name, value in {'Content-Type': 'text/html; charset=utf-8', 'Content-Length': str(len(body)), **headers}.items():
            self.send_header(name.replace('_', '-'), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = dict(c.strip().split('=', 1) for c in self.headers.get('Cookie', '').split(';') if '=' in c).get('name')
        self.page(INSIDE % urllib.parse.unquote(name) if name else LOGIN)

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers['Content-Length'])).decode())
        name, word = form.get('name', [''])[0], form.get('word', [''])[0]
        print('login', name, word, flush=True)
        if word != 'open sesame':
            return self.page(LOGIN, 403)
        self.page('', 303, Location='/', Set_Cookie='name=' + urllib.parse.quote(name) + '; Max-Age=3600')


http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Shop).serve_forever()
