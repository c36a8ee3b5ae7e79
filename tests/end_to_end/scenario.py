# SPDX-License-Identifier: Apache-2.0
"""What the scripts beside this one share: how a scenario fails, and where it may listen."""
import socket


class Failure(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failure(text)


def free_ports(count):
    """Ports that were free a moment ago; all held at once, so they differ."""
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
