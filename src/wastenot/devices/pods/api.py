"""The pods of one node, asked of Kubernetes' API with the service account of whoever asks.

It is one request, so it is made with the standard library: Kubernetes' own client would bring a dozen packages into a
container that may see all pods.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from wastenot.core.errors import BadInputError, ServerError
from wastenot.core.vendors import with_drivers

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PATIENCE_S = 10.0
_LONGEST = 64 << 20  # bytes of an answer; 500 pods of a node take a tenth of it


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    Attributes:
        name: with its namespace, as ``kubectl`` takes them: ``training/llama-0``.
        annotations: by name.
        gpus: number of GPUs that its containers ask for; 0 where it gets them otherwise, as by a resource claim.
    """

    name: str
    annotations: Mapping[str, str]
    gpus: int


class Api:
    """Kubernetes' API.

    Args:
        node: whose pods are asked for.
        account: folder of the service account's token, which Kubernetes renews, and of the certificate to trust.

    Raises:
        BadInputError: this is not a pod with a service account.
    """

    def __init__(self, node: str, account: Path = ACCOUNT) -> None:
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
        if not host or not port:
            raise BadInputError("KUBERNETES_SERVICE_HOST, _PORT: not set; wastenot-pods runs in a pod (deploy/helm)")
        self._token = account / "token"
        try:
            self._trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except OSError as error:
            raise BadInputError(f"{account}/ca.crt: cannot be read: {error}; mount a service account's token") from error
        # resourceVersion 0: from the API server's memory, however many nodes ask
        query = urlencode({"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"})
        self._url = f"https://{f'[{host}]' if ':' in host else host}:{port}/api/v1/pods?{query}"

    def pods(self) -> dict[str, Pod]:
        """The pods of the node by their UIDs.

        Raises:
            ServerError: the API does not answer, refuses, or sends something else.
        """
        try:
            asked = Request(self._url, headers={"Authorization": f"Bearer {self._token.read_text().strip()}"})
            with urlopen(asked, timeout=_PATIENCE_S, context=self._trusted) as answer:
                items = json.loads(answer.read(_LONGEST))["items"]
            return {str(item["metadata"]["uid"]): _pod(item) for item in items}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServerError(f"{self._url}: {type(error).__name__}: {error}") from error


def _pod(item: Mapping[str, Any]) -> Pod:
    about, containers = item["metadata"], item["spec"]["containers"]
    limits = [(each.get("resources") or {}).get("limits") or {} for each in containers]
    names = [vendor.resource for vendor in with_drivers()]
    gpus = sum(int(limit.get(name, 0)) for limit in limits for name in names)
    return Pod(f"{about['namespace']}/{about['name']}", about.get("annotations") or {}, gpus)
