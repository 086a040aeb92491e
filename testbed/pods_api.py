"""Kubernetes' API as wastenot-pods asks it: HTTPS, a service account's token, and the list of a node's pods."""

import json
import ssl
import subprocess
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def pod(name, *, gpus=1, node="n1", **annotations):
    """A pod as the API describes it; ``core_mhz`` is the annotation ``wastenot.dev/core-mhz``."""
    named = {f"wastenot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {
        "name": "main",
        "image": "registry.example.com/train",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": str(uuid.uuid4()), "annotations": named},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


class PodsApi:
    """A server.

    Attributes:
        pods: all of the cluster.
        account: folder of a service account that may list them.
        broken: whether it answers that it is broken.
        asked: how often it was asked.
    """

    def __init__(self, folder):
        self.pods, self.broken, self.asked = [], False, 0
        self.account = folder / "serviceaccount"
        self.account.mkdir()
        self.token = "first"
        key, certificate = folder / "key.pem", self.account / "ca.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=api",
             "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def token(self):
        return self._token

    @token.setter
    def token(self, token):
        self._token = token
        (self.account / "token").write_text(f"{token}\n")

    @property
    def environment(self):
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._server.server_port)}

    def answer(self, path, token):
        """Status and document of a request."""
        self.asked += 1
        if token != f"Bearer {self._token}":
            return 401, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 401}
        asked = urlsplit(path)
        [selector] = parse_qs(asked.query)["fieldSelector"]
        if self.broken or asked.path != "/api/v1/pods" or not selector.startswith("spec.nodeName="):
            return 500, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500}
        node = selector.partition("=")[2]
        items = [each for each in self.pods if each["spec"]["nodeName"] == node]
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _handler(self):
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                code, document = api.answer(self.path, self.headers.get("Authorization"))
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *arguments):
                pass

        return Handler
