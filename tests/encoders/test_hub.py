"""A hub whose connection breaks off in the middle of the weights: one sentence, and nothing that is taken for whole."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

COMMIT = "a" * 40
FILES = {"config.json": b"{}", "model.safetensors": b"x" * 100_000}
FETCH = """
from clip_geometry.encoders.hub import first_file, folder
from clip_geometry.registry import InputError
for get in (lambda: folder("org/name", ["config.json", "model.safetensors"]),
            lambda: first_file("org/name", ["model.safetensors"])):
    try:
        print("whole:", get())
    except InputError as error:
        print("refused:", error)
"""


class _Hub(BaseHTTPRequestHandler):
    """Its API, and its files, of which the weights break off."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _send(self, body, tag="json", most=None):
        self.send_response(200)
        for key, value in {"Content-Length": len(body), "ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:most])
        self.close_connection = most is not None

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        if name in FILES:
            self._send(FILES[name], name[:5] * 8, 50_000 if name == "model.safetensors" else None)
        elif "/tree/" in self.path:
            tree = [{"type": "file", "path": each, "size": len(FILES[each]), "oid": "0" * 40} for each in FILES]
            self._send(json.dumps(tree).encode())
        else:
            info = {"id": "org/name", "sha": COMMIT, "siblings": [{"rfilename": each} for each in FILES]}
            self._send(json.dumps(info).encode())

    do_HEAD = do_GET


@pytest.mark.slow
def test_weights_that_break_off_are_one_sentence_and_not_taken_for_whole(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        settings = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path)}
        settings |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "no_proxy": "127.0.0.1"}
        online = subprocess.run(
            [sys.executable, "-c", FETCH], env={**os.environ, **settings}, capture_output=True, text=True
        )
        server.shutdown()
    offline = subprocess.run(
        [sys.executable, "-c", FETCH],
        env={**os.environ, **settings, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    for done in (online, offline):
        first, second = done.stdout.splitlines()
        assert first.startswith("refused: config.json or model.safetensors of 'org/name' could not be fetched")
        assert second.startswith("refused: model.safetensors of 'org/name' could not be fetched")
    assert list(tmp_path.rglob("config.json"))  # the hub was asked, and answered
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size == 100_000] == []
