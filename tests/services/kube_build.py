"""Builds a real kube-apiserver from Debian's own source package, once, into a folder: `python -m ... FOLDER`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.services.install import may_install

#: Debian packages that the build and the run need. Never kubernetes-client: it clashes with a preinstalled kubectl.
PACKAGES = ("golang-1.19-go", "etcd-server")
GO = Path("/usr/lib/go-1.19/bin/go")
ROOT = "k8s.io/kubernetes"
#: Go packages whose markers would not generate: samples, and one that carries its own.
SKIPPED = re.compile(r"sample-|code-generator|/kube-aggregator/pkg/apis/apiregistration$|/testdata/")
MARKER = re.compile(r"^\s*//\s*\+k8s:openapi-gen=", re.MULTILINE)
VERSION = "1.20.2"


def build(folder: Path) -> Path:
    """Path of the kube-apiserver in ``folder``, built there where it is not yet: about 5 minutes and 1.5 GB.

    Raises SystemExit where packages are missing, CalledProcessError where the build fails.
    """
    server = folder.resolve() / "kube-apiserver"
    if server.exists():
        return server
    _need_packages()
    folder.mkdir(parents=True, exist_ok=True)
    source = _source(folder.resolve())
    _generate(folder.resolve(), source)
    component, client = f"{ROOT}/vendor/k8s.io/component-base/version", f"{ROOT}/vendor/k8s.io/client-go/pkg/version"
    major, minor, _ = VERSION.split(".")
    said = [f"-X {component}.gitVersion=v{VERSION}", f"-X {component}.gitMajor={major}"]
    said += [f"-X {component}.gitMinor={minor}", f"-X {client}.gitVersion=v{VERSION}"]
    flags = " ".join(["-s", "-w", *said])
    made = server.with_suffix(".new")  # a broken build leaves nothing that looks like a server
    _go(source, "build", "-p", "2", "-ldflags", flags, "-o", str(made), f"{ROOT}/cmd/kube-apiserver")
    made.rename(server)
    return server


def _need_packages() -> None:
    lacking = [name for name, there in zip(PACKAGES, (GO.exists(), shutil.which("etcd")), strict=True) if not there]
    if not lacking:
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *lacking]
    if not may_install():
        sys.exit(f"to build a kube-apiserver: sudo {' '.join(command)}")
    subprocess.run(command, check=True, timeout=900)


def _source(folder: Path) -> Path:
    """The unpacked source. Its package lists are read into the folder, so that the machine's own stay as they are."""
    source = folder / "gopath" / "src" / ROOT
    if source.exists():
        return source
    lists = folder / "apt"
    (lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (lists / "sources.list").write_text("".join(f"{line}\n" for line in _deb_src()))
    options = {
        "Dir::Etc::SourceList": str(lists / "sources.list"),
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": str(lists / "lists"),
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", *words, "-qq", "update"], check=True, timeout=300)
    fetch = ["apt-get", *words, "-qq", "source", "--download-only", "kubernetes"]
    subprocess.run(fetch, cwd=folder, check=True, timeout=600)
    (archive,) = folder.glob("kubernetes_*.orig.tar.*")
    unpacked = folder / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="tar")
    source.parent.mkdir(parents=True, exist_ok=True)
    (top,) = unpacked.iterdir()
    return top.rename(source)


def _deb_src() -> Iterator[str]:
    """The machine's own Debian archives, as places of source packages."""
    for listed in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]:
        for line in listed.read_text().splitlines() if listed.exists() else ():
            if line.startswith("deb ") and "debian" in line:
                yield f"deb-src {line.removeprefix('deb ')}"
    for listed in Path("/etc/apt/sources.list.d").glob("debian*.sources"):
        for block in listed.read_text().split("\n\n"):
            said = dict(re.findall(r"^([\w-]+):\s*(.*)$", block, re.MULTILINE))
            for suite in said.get("Suites", "").split():
                signed = f"[signed-by={said['Signed-By']}] " if "Signed-By" in said else ""
                yield f"deb-src {signed}{said['URIs']} {suite} {said['Components']}"


def _generate(folder: Path, source: Path) -> None:
    """The API descriptions, which Debian's archive leaves out."""
    tool = folder / "openapi-gen"
    _go(source, "build", "-o", str(tool), f"{ROOT}/vendor/k8s.io/kube-openapi/cmd/openapi-gen")
    out = ["-p", f"{ROOT}/pkg/generated/openapi", "-O", "zz_generated.openapi", "-h"]
    out += ["hack/boilerplate/boilerplate.generatego.txt", "-r", str(folder / "violations.txt")]
    command = [str(tool), "--logtostderr", "-i", ",".join(sorted(_marked(source))), *out]
    subprocess.run(command, cwd=source, env=_env(source), check=True, timeout=1800)


def _marked(source: Path) -> Iterator[str]:
    """Go packages that ask for an API description."""
    for top, prefix in (
        ("pkg", ROOT),
        ("cmd", ROOT),
        ("plugin", ROOT),
        ("staging/src/k8s.io", f"{ROOT}/vendor/k8s.io"),
    ):
        cut = source if prefix == ROOT else source / "staging/src/k8s.io"
        found = set[str]()
        for file in (source / top).rglob("*.go"):
            package = f"{prefix}/{file.parent.relative_to(cut)}"
            made = file.name.endswith("_test.go") or "zz_generated" in file.name
            wanted = package not in found and not made and not SKIPPED.search(package)
            if wanted and MARKER.search(file.read_text(errors="replace")):
                found.add(package)
        yield from found


def _go(source: Path, *words: str) -> None:
    subprocess.run([str(GO), *words], cwd=source, env=_env(source), check=True, timeout=3600)


def _env(source: Path) -> dict[str, str]:
    folder = source.parents[3]
    own = {"GO111MODULE": "off", "GOPROXY": "off", "CGO_ENABLED": "0", "PWD": str(source)}
    own |= {"GOCACHE": str(folder / "gocache"), "GOPATH": str(folder / "gopath")}
    return {**os.environ, **own, "PATH": f"{GO.parent}:{os.environ.get('PATH', '')}"}


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
