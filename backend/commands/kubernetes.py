"""`watchkeeper kubernetes-manifest`: the account and the rights that Watchkeeper needs, to be applied with kubectl."""

from __future__ import annotations

import argparse

from backend.clients.kubernetes_rights import manifest


def kubernetes_manifest(arguments: argparse.Namespace) -> int:
    print(manifest(act=not arguments.observe, namespace=arguments.namespace), end="")
    return 0
