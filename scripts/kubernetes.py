#!/usr/bin/env python3
"""Checks the manifests of examples/kubernetes: by Kubernetes' own schemas, strictly, and what these cannot say.

The schemas are those that the Python package kubernetes-validate carries, of the oldest version that is
meant and of the newest that it has. Beyond them: a mount names a volume or a claim of its pod, a service
and a set select the pods' labels, a claim's class is there, and Forebay's image has this version.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
# ReadWriteOncePod is there for good from this one on.
OLDEST = "1.29"
# Below the target directory: scripts/setup.sh puts the package there.
PYTHON = "peers/venv/bin/python"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="[default: all of examples/kubernetes]")
    options = parser.parse_args()
    files = options.files or sorted((HERE / "examples/kubernetes").glob("*.yaml"))
    validator = importlib.import_module("kubernetes_validate")
    documents = [(path, document) for path in files for document in read(path)]
    faults = [fault for path, document in documents for fault in by_schema(validator, path, document)]
    faults += by_reference(documents)
    print("\n".join(faults) or f"{len(documents)} documents in {len(files)} files: as Kubernetes {OLDEST} to {validator.latest_version()} has them")
    return int(bool(faults))


def read(path: pathlib.Path) -> list[dict]:
    yaml = importlib.import_module("yaml")
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def by_schema(validator, path: pathlib.Path, document: dict) -> list[str]:
    faults = []
    for version in (OLDEST, validator.latest_version()):
        try:
            validator.validate(document, version, strict=True)
        except (validator.ValidationError, validator.SchemaNotFoundError) as error:
            where = ".".join(map(str, getattr(error, "path", [])))
            faults.append(f"{path}: {document.get('kind')}, Kubernetes {version}: {where}: {error.message}")
    return faults


def by_reference(documents: list[tuple[pathlib.Path, dict]]) -> list[str]:
    classes = {document["metadata"]["name"] for _, document in documents if document["kind"] == "StorageClass"}
    sets = [(path, document["spec"]) for path, document in documents if document["kind"] == "StatefulSet"]
    faults = [fault for path, spec in sets for fault in of_set(path, spec, classes)]
    labels = [spec["template"]["metadata"]["labels"].items() for _, spec in sets]
    for path, document in documents:
        if document["kind"] == "Service" and not any(document["spec"]["selector"].items() <= of_pod for of_pod in labels):
            faults.append(f"{path}: the service {document['metadata']['name']} selects no pod")
    return faults


def of_set(path: pathlib.Path, spec: dict, classes: set[str]) -> list[str]:
    pod, claims = spec["template"]["spec"], spec.get("volumeClaimTemplates", [])
    places = {volume["name"] for volume in pod.get("volumes", [])} | {claim["metadata"]["name"] for claim in claims}
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
    faults = [f"{path}: a mount of {name}, which is no volume of the pod" for name in sorted(mounted - places)]
    faults += [f"{path}: the volume {name} is mounted nowhere" for name in sorted(places - mounted)]
    if not spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items():
        faults.append(f"{path}: the set does not select its pods")
    named = {claim["spec"].get("storageClassName") for claim in claims} - {None}
    faults += [f"{path}: there is no storage class {name}" for name in sorted(named - classes)]
    wanted = re.search(r'^version = "(.*)"$', (HERE / "Cargo.toml").read_text(), re.MULTILINE)[1]
    versions = {container["image"].rsplit(":", 1)[-1] for container in containers if "/forebay:" in container["image"]}
    return faults + [f"{path}: forebay's image has version {version}, and this is {wanted}" for version in versions - {wanted}]


def python_with_package() -> pathlib.Path | None:
    """The Python that may have the package, if this one has it not and is not the same."""
    python = HERE / os.environ.get("CARGO_TARGET_DIR", "target") / PYTHON
    is_this = pathlib.Path(sys.prefix).resolve() == python.parent.parent.resolve()
    has_it = importlib.util.find_spec("kubernetes_validate") is not None
    return python if python.exists() and not is_this and not has_it else None


if __name__ == "__main__":
    if python := python_with_package():
        os.execv(python, [python, *sys.argv])
    if importlib.util.find_spec("kubernetes_validate") is None:
        sys.exit("kubernetes.py: error: the Python package kubernetes-validate is not there. Remedy: scripts/setup.sh lint")
    sys.exit(main())
