"""The Helm chart, rendered by Helm's own library and checked against the published schemas of Kubernetes."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from testbed.pods_api import PodsApi, pod
from testbed.read_policies import read_policy
from wastenot.core.version import own_version
from wastenot.devices.clockd.main import main
from wastenot.devices.clockd.policy import Bounds, Gpu, Peer
from wastenot.devices.common.daemon_protocol import SOCKET
from wastenot.devices.common.journal import MACHINE
from wastenot.serving.control.placement import placements

helm = pytest.importorskip("helm_python")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "wastenot"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
IMAGES = {"wastenotd": f"registry.example.com:5000/a/wastenotd@{DIGEST}", "pods": f"example.com/wastenot-pods@{DIGEST}"}
VERSIONS = ("1.25", "1.30", "1.37")  # the oldest that the chart admits, and the newest whose schemas are known
EVERYTHING = {
    "policy": {
        "bounds": {"core_mhz": [900, 1980], "memory_mhz": False, "longest_lease_s": 3600},
        "more": "heartbeat_s = 5\n[[allow]]\ngroups = [4242]\ncore_mhz = [1, 2]",
    },
    "plans": {"llama": '{"schema": "wastenot.plan/1"}'},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {"apiServer": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]},
}
SERVERS = '[[instance]]\nurl = "http://localhost:8000"\ndevices = ["nvidia:0", "nvidia:1"]\n'
LITTLE = {"nodeSelector": None, "tolerations": [], "runtimeClassName": "", "priorityClassName": "", "policy": {"bounds": {}}}


def render(**values):
    """The chart's objects by kind and name."""
    with helm.Chart.load(CHART) as chart:
        files = chart.render({"images": IMAGES} | values, name="w", namespace="gpus")
    found = [each for text in files.values() for each in yaml.safe_load_all(text) if each is not None]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod_of(objects, name):
    return objects["DaemonSet", name]["spec"]["template"]["spec"]


def mounts(spec):
    volumes = {each["name"]: each for each in spec["volumes"]}
    [container] = spec["containers"]
    return {each["mountPath"]: (volumes[each["name"]], each.get("readOnly", False)) for each in container["volumeMounts"]}


def is_valid(document, version="1.30"):
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return error.message
    return True


@pytest.mark.parametrize("values", [{}, EVERYTHING, LITTLE])
def test_kubernetes_understands_its_objects(values):
    operators = {"ServiceMonitor", "PrometheusRule"}
    for (kind, _), document in render(**values).items():
        if kind not in operators:
            assert [is_valid(document, version) for version in VERSIONS] == [True] * len(VERSIONS), document
    wrong = deepcopy(render(**values)["DaemonSet", "w-wastenotd"])
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    assert "volumeMount" in is_valid(wrong)  # it does look


def test_helm_finds_nothing_wrong_with_the_chart_whose_version_is_the_packages():
    found = helm.lint(CHART, values={"images": IMAGES} | EVERYTHING)
    assert found["errors"] == [] and [each["error"] for each in found["messages"]] == ["icon is recommended"]
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == own_version()


@pytest.mark.parametrize(
    "image",
    ["", "wastenotd", "wastenotd:1", "example.com/wastenotd:latest", f"wastenotd:1@{DIGEST}", "wastenotd@sha256:DIGEST"],
)
def test_images_are_named_by_a_digest_and_nothing_starts_from_a_tag(image):
    with pytest.raises(helm.HelmError, match="images"):
        render(images=IMAGES | {"pods": image})


def test_values_that_mean_nothing_are_refused():
    for wrong in ({"policy": {"bounds": {"core_hz": [1, 2]}}}, {"plan": {}}, {"plans": {"Llama/x": "{}"}}):
        with pytest.raises(helm.HelmError):
            render(**wrong)


def test_the_daemon_has_what_it_needs_and_no_more():
    spec = pod_of(render(), "w-wastenotd")
    [container] = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN", "CHOWN"]}
    assert "privileged" not in container["securityContext"] and "hostNetwork" not in spec and spec["hostPID"] is True
    assert spec["automountServiceAccountToken"] is False and "serviceAccountName" not in spec
    assert container["livenessProbe"]["exec"]["command"] == ["wastenotd", "--health"]
    where = mounts(spec)
    assert where[str(SOCKET.parent)][0]["hostPath"]["path"] == str(SOCKET.parent)
    assert where[str(MACHINE)][0]["hostPath"]["path"] == str(MACHINE)
    assert container["args"] == ["--policy", "/etc/wastenot/wastenotd.toml"] and "/etc/wastenot" in where


def test_what_asks_for_pods_may_list_pods_and_nothing_else():
    objects = render()
    spec = pod_of(objects, "w-pods")
    [container] = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]} and spec["hostPID"] is True
    assert spec["securityContext"]["runAsNonRoot"] and not container["securityContext"]["allowPrivilegeEscalation"]
    assert objects["ClusterRole", "w-pods"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    [subject] = objects["ClusterRoleBinding", "w-pods"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": spec["serviceAccountName"], "namespace": "gpus"}
    assert str(MACHINE) not in mounts(spec) and mounts(spec)[str(SOCKET.parent)][1]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9401}]


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_the_policy_lets_it_set_what_annotations_may_ask_for(values, tmp_path, capsys):
    objects, policy = render(**values), tmp_path / "wastenotd.toml"
    policy.write_text(objects["ConfigMap", "w-policy"]["data"][policy.name])
    assert main(["--policy", str(policy), "--check"]) == 0 and "valid" in capsys.readouterr().out
    spec, read, gpu = pod_of(objects, "w-pods"), read_policy(policy), Gpu(0, "GPU-x")
    user, groups = spec["securityContext"]["runAsUser"], frozenset(spec["securityContext"]["supplementalGroups"])
    assert read.group in groups
    bounds, other = read.bounds(Peer(user, frozenset(), 1), gpu), read.bounds(Peer(1000, groups, 1), gpu)
    if values:
        assert bounds == Bounds((900.0, 1980.0), None, longest_lease_s=3600.0) and other == Bounds((1.0, 2.0))
        assert read.heartbeat_s == 5.0
    else:
        assert bounds == Bounds() and other is None


def test_the_network_is_closed_but_for_the_api_and_metrics():
    objects = render(**EVERYTHING)
    daemon, pods = (objects["NetworkPolicy", name]["spec"] for name in ("w-wastenotd", "w-pods"))
    assert daemon["policyTypes"] == ["Ingress", "Egress"] and not daemon.keys() & {"ingress", "egress"}
    [out] = pods["egress"]
    assert [each["port"] for each in out["ports"]] == [443, 6443] and out["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    [into] = pods["ingress"]
    assert into["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    for policy, name in ((daemon, "w-wastenotd"), (pods, "w-pods")):
        labels = objects["DaemonSet", name]["spec"]["template"]["metadata"]["labels"]
        assert (
            policy["podSelector"]["matchLabels"] == labels == objects["DaemonSet", name]["spec"]["selector"]["matchLabels"]
        )
    assert not [kind for kind, _ in render(networkPolicy={"enabled": False}) if kind == "NetworkPolicy"]


def test_prometheus_and_grafana_find_what_they_read():
    objects = render(**EVERYTHING)
    service, monitor = objects["Service", "w-pods"], objects["ServiceMonitor", "w"]
    labels = objects["DaemonSet", "w-pods"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels and service["metadata"]["labels"] == labels
    assert monitor["spec"]["selector"]["matchLabels"] == labels and monitor["metadata"]["labels"]["release"] == "prometheus"
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == [each["name"] for each in service["spec"]["ports"]]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "wastenot.rules.yml").read_text())
    assert objects["PrometheusRule", "w"]["spec"] == rules
    dashboard = objects["ConfigMap", "w-dashboard"]
    assert json.loads(dashboard["data"]["wastenot.json"]) == json.loads((DEPLOY / "grafana" / "wastenot.json").read_text())
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert objects["ConfigMap", "w-plans"]["data"] == {"llama.json": EVERYTHING["plans"]["llama"]}


def test_serve_control_follows_the_servers_of_its_node_without_rights(wastenot, tmp_path):
    assert ("DaemonSet", "w-serve-control") not in render()
    asked = {"engine": '{"schema": "wastenot.engine/1"}', "servers": SERVERS, "setClocks": True, "options": ["--ttft=1s"]}
    with pytest.raises(helm.HelmError, match=r"images\.users"):
        render(serveControl=asked)
    objects = render(serveControl=asked, images=IMAGES | {"users": f"example.com/wastenot@{DIGEST}"})
    assert [is_valid(objects["DaemonSet", "w-serve-control"], version) for version in VERSIONS] == [True] * len(VERSIONS)
    spec, files = pod_of(objects, "w-serve-control"), objects["ConfigMap", "w-serve-control"]["data"]
    [container] = spec["containers"]
    named = [each.partition("=")[0] for each in container["args"] if each.startswith("--")]
    shown = wastenot("serve", "control", "--help").out
    assert named == ["--instances", "--allow-clock-control", "--ttft"] and all(each in shown for each in named)
    written = tmp_path / "servers.toml"
    written.write_text(files["servers.toml"])
    assert placements((), written) == {"http://localhost:8000": ("nvidia:0", "nvidia:1")}
    assert set(mounts(spec)) == {str(SOCKET.parent), "/etc/wastenot", "/tmp"} and spec["hostNetwork"]
    policy = tmp_path / "wastenotd.toml"
    policy.write_text(objects["ConfigMap", "w-policy"]["data"][policy.name])
    user = spec["securityContext"]["runAsUser"]
    assert read_policy(policy).bounds(Peer(user, frozenset(), 1), Gpu(0, "GPU-x")) == Bounds()


def test_what_stands_for_the_api_answers_as_it_does(tmp_path):
    api = PodsApi(tmp_path)
    api.pods = [pod("train", core_mhz="1410"), pod("other", node="n2")]
    code, document = api.answer("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&resourceVersion=0", "Bearer first")
    assert code == 200 and [is_valid(document, version) for version in VERSIONS] == [True] * len(VERSIONS)
    assert [each["metadata"]["name"] for each in document["items"]] == ["train"]
    api.close()
