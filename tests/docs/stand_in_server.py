"""A server of the documentation's examples: it answers as llama.cpp's llama-server does, each prompt alike."""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Committed tokens, then the counters since the start: the prefill's token, a round of 3 drafts with 2 accepted, one of
# 3 with 1 accepted.
TOKENS = [(1, 0, 0), (2, 3, 2), (3, 3, 2), (4, 3, 2), (5, 6, 3), (6, 6, 3)]


def chunk(tokens, drafted, accepted, **more):
    timings = {"prompt_n": 5, "cache_n": 0, "prompt_ms": 9.5, "predicted_n": tokens, "predicted_ms": 10.0 * tokens}
    if drafted:
        timings.update(draft_n=drafted, draft_n_accepted=accepted)
    return {"content": "", "tokens": [tokens], "stop": False, "timings": timings, **more}


class Handler(BaseHTTPRequestHandler):
    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.answer(json.dumps({"default_generation_settings": {}} if self.path == "/props" else {"data": [{"id": "m"}]}))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        settings = {"temperature": 0.0, "speculative.types": "draft-eagle3"}
        if self.path == "/apply-template":
            self.answer(json.dumps({"prompt": "Hello"}))
        elif not asked.get("stream"):
            self.answer(json.dumps({"model": "m", "generation_settings": settings}))
        else:
            last = chunk(*TOKENS[-1], model="m", prompt="Hello", generation_settings=settings)
            chunks = [chunk(*one) for one in TOKENS] + [{**last, "tokens": [], "stop": True, "stop_type": "limit"}]
            self.answer("".join(f"data: {json.dumps(one)}\n\n" for one in chunks))

    def log_message(self, *_):
        pass


def start():
    """Serves on a free port of this machine until the process ends; returns the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
