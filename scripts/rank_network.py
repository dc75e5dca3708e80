"""scripts/rank_network.py: hosts for ranks, as network namespaces on a bridge. Needs root."""
import json
import os
import subprocess
import tempfile

SUBNET = "10.77.0"
LINK = "eth0"
HEADER_BYTES = 14 + 20 + 32  # Ethernet, IPv4, TCP with timestamps, as an interface counts them


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def why_not():
    """Why this process cannot make namespaces; empty: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Network(1):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {getattr(error, 'stderr', '') or error}".strip()


class Network:
    """Hosts 1 to `hosts`, each a namespace with one link to a switch; the launcher runs there."""

    def __init__(self, hosts, megabits=None):
        self.hosts = range(1, hosts + 1)
        self.name = f"tenon{os.getpid()}"
        self.switch = f"{self.name}-switch"
        self.megabits = megabits
        self.folder = tempfile.TemporaryDirectory()
        self.agent = os.path.join(self.folder.name, "agent")

    def namespace(self, host):
        return f"{self.name}-{host}"

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "set", "lo", "up")
        ip("-n", self.switch, "link", "add", "bridge0", "type", "bridge")
        ip("-n", self.switch, "address", "add", f"{SUBNET}.254/24", "dev", "bridge0")
        ip("-n", self.switch, "link", "set", "bridge0", "up")
        for host in self.hosts:
            space, port = self.namespace(host), f"port{host}"
            ip("netns", "add", space)
            ip("link", "add", LINK, "netns", space, "type", "veth", "peer", "name", port, "netns",
               self.switch)
            ip("-n", self.switch, "link", "set", port, "master", "bridge0", "up")
            ip("-n", space, "address", "add", f"{SUBNET}.{host}/24", "dev", LINK)
            for link in ("lo", LINK):
                ip("-n", space, "link", "set", link, "up")
            # BBR, the default of some hosts, leaves a part of a short queue's rate unused.
            subprocess.run(["ip", "netns", "exec", space, "sysctl", "-qw",
                            "net.ipv4.tcp_congestion_control=reno"], check=True)
        if self.megabits is not None:
            self.limit(self.megabits)
        # In the place of ssh: options, the host, the command. Open MPI's daemons make folders in
        # TMPDIR, and fail where two make the same one.
        with open(self.agent, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=${1##*.}\n"
                         f"shift\nexport TMPDIR={self.folder.name}/$host\nmkdir -p $TMPDIR\n"
                         f"exec ip netns exec {self.name}-$host sh -c \"$*\"\n")
        os.chmod(self.agent, 0o755)

    def __exit__(self, *_):
        for space in (self.switch, *map(self.namespace, self.hosts)):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)
        self.folder.cleanup()

    def limit(self, megabits):
        """Each host sends at most that, and receives as much at the same time."""
        for host in self.hosts:
            subprocess.run(["tc", "-n", self.namespace(host), "qdisc", "replace", "dev", LINK, "root",
                            "tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "200ms"],
                           check=True)

    def cut(self, host):
        ip("-n", self.namespace(host), "link", "set", LINK, "down")

    def payload_bytes(self):
        """What each host has sent so far, without headers; and the headers."""
        found = []
        for host in self.hosts:
            sent, = json.loads(ip("-n", self.namespace(host), "-j", "-s", "link", "show", LINK))
            headers = sent["stats64"]["tx"]["packets"] * HEADER_BYTES
            found.append((sent["stats64"]["tx"]["bytes"] - headers, headers))
        return found

    def launcher(self, mpi):
        """The words before a command, one rank for each host: TCP alone, no shared memory."""
        addresses = [f"{SUBNET}.{host}" for host in self.hosts]
        inside = ["ip", "netns", "exec", self.switch]
        count = ["-n", str(len(addresses))]
        if mpi == "mpich":
            return inside + ["env", f"UCX_NET_DEVICES={LINK}", "UCX_TLS=tcp,self", "mpirun.mpich",
                             "-launcher", "ssh", "-launcher-exec", self.agent, "-iface", "bridge0",
                             "-hosts", ",".join(addresses), *count]
        subnet = f"{SUBNET}.0/24"
        return inside + ["env", "PMIX_MCA_gds=hash", "mpirun.openmpi", "--allow-run-as-root",
                         "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", subnet,
                         "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet,
                         "--mca", "pml", "ob1", "--host", ",".join(addresses), *count]
