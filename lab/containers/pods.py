"""The pods of examples/kubernetes, as a kubelet would run them: init container, user and group, rights, read-only root, limits, volumes and the wrapped command.

What a kubelet gives by a claim or an emptyDir is a directory here. Probes are asked by hand.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex

import yaml

from ..systemd.image import Failure
from .databases import Served
from .engine import RUN, Podman
from .images import FOREBAY
from .life import ContainerLife, Trial

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/kubernetes"
# Kubernetes has no option for it.
SHM = ("--shm-size", "64m")


class PodLife(ContainerLife):
    """A StatefulSet's pod; another pod with its claims after each kill."""

    def __init__(self, podman: Podman, database: Served, scratch: pathlib.Path) -> None:
        super().__init__(podman, database, Trial("pod", has_group=True), scratch)
        documents = yaml.safe_load_all((EXAMPLES / f"{database.name}.yaml").read_text())
        self.set = next(document for document in documents if document["kind"] == "StatefulSet")["spec"]
        self.pod = self.set["template"]["spec"]
        self.claims = [claim["metadata"]["name"] for claim in self.set["volumeClaimTemplates"]]

    def lay_volumes(self) -> None:
        super().lay_volumes()
        for name in [volume["name"] for volume in self.pod["volumes"]] + self.claims:
            self._directory(name)

    def _directory(self, name: str, below: str = "") -> pathlib.Path:
        """The volume's, as a fsGroup has it."""
        place = self.home / name / below
        place.mkdir(parents=True, exist_ok=True)
        os.chown(place, 0, self.pod["securityContext"]["fsGroup"])
        place.chmod(0o2777 if name == "tmp" else 0o2775)
        return place

    def _words(self, container: dict, image: str) -> list[str]:
        """Of `podman run`, for a container of the pod."""
        pod, own = self.pod["securityContext"], container["securityContext"]
        if own != {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}} or not pod["runAsNonRoot"]:
            raise Failure(f"{self.name}: a securityContext that is not understood: {own}")
        words = ["--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges", *SHM]
        words += ["--user", f"{pod['runAsUser']}:{pod['runAsGroup']}", "--group-add", str(pod["fsGroup"])]
        words += ["--memory", re.sub("i$", "", container["resources"]["limits"]["memory"]).lower()]
        for variable in container.get("env", []):
            words += ["--env", f"{variable['name']}={variable.get('value', 'secret')}"]
        for mount in container["volumeMounts"]:
            place = self._directory(mount["name"], mount.get("subPath", ""))
            words += ["--volume", f"{place}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
        entry, *rest = [*container["command"], *container.get("args", [])]
        if rest[:1] == ["run"]:
            # Both claims lie on one disk here.
            rest.insert(1, "--absorb-preallocated")
        return [*words, "--entrypoint", entry, image, *map(str, rest)]

    def make_pool(self) -> None:
        """The init container's work."""

    def start(self, command: list[str] | None = None) -> None:
        self.podman.remove(self.name)
        for container in self.pod["initContainers"]:
            self.podman.call(*RUN, "--rm", *self._words(container, FOREBAY))
        (server,) = self.pod["containers"]
        self.podman.call(*RUN, "--detach", "--name", self.name, *self._words(server, self.database.image))

    def runs(self) -> list[dict]:
        """As somebody asks who looks into the pod: the program is in the volume."""
        (server,) = self.pod["containers"]
        return self.parsed(*self.podman.ask("exec", self.name, server["command"][0], "status", "--json"))

    def probe(self) -> None:
        (server,) = self.pod["containers"]
        for kind in ("startupProbe", "readinessProbe"):
            words = server[kind]["exec"]["command"]
            status, said = self.podman.ask("exec", self.name, *words)
            if status != 0:
                raise Failure(f"{self.name}: {kind} ({shlex.join(words)}): {status}: {said}")

    def run(self) -> None:
        self.lay_volumes()
        self.start()
        self.wait_ready("at first")
        self.probe()
        if self.database.name == "postgres" and self.podman.inside(self.name, "psql -qAtXc 'select 1 from lab limit 1'")[0] != 0:
            raise Failure(f"{self.name}: the entry script made no cluster")
        self.begin()
        self.check_standing()
        self.write_until("kill", "--signal", "KILL")
        self.podman.call("start", self.name)
        self.wait_ready("killed, its container started again")
        self.check("killed, the pod's container started again")
        self.write_until("kill", "--signal", "KILL")
        self.start()
        self.wait_ready("killed, another pod")
        self.check("killed, another pod with its claims")
        self.write_until("stop", "--time", self.pod["terminationGracePeriodSeconds"])
        self.start()
        self.wait_ready("stopped, another pod")
        self.check("stopped, another pod with its claims")
        self.found.append("0 lost")


def pod_of(podman: Podman, database: Served, scratch: pathlib.Path) -> str:
    return PodLife(podman, database, scratch).tried()
