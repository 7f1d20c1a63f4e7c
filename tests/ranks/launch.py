"""Starts linnet as several ranks with Open MPI: on this machine, or on two hosts.

A host is a network namespace with a name, a /tmp and a /dev/shm of its own, so that ranks of two hosts share neither memory nor
temporary files; a veth pair is the network between them, and mpirun reaches the second one by nsenter as it would by ssh."""
import os
import shutil
import signal
import subprocess
import sys
import time

ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
LIMIT = 300  # seconds for a run; only a hang reaches it


def skip(why):
    print("SKIP: " + why, flush=True)
    sys.exit(77)


def need_mpirun():
    if not shutil.which("mpirun"):
        skip("mpirun is not installed (Debian: apt-get install openmpi-bin): ranks are NOT tested")


class Job:
    """A started job: the process of mpirun, in a session of its own, and what it writes."""

    def __init__(self, command, env, out, err):
        self.out, self.err = open(out, "w+"), open(err, "w+")
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, start_new_session=True)

    def text(self, file):
        with open(file.name) as f:
            return f.read()

    def rank(self, number):
        """The process id of the linnet process of a rank, 0 if it has none yet."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    names = f.read().split(b"\0")
                with open(f"/proc/{pid}/comm") as f:
                    command = f.read().strip()
            except OSError:
                continue
            mine = b"OMPI_COMM_WORLD_RANK=%d" % number in names or b"PMI_RANK=%d" % number in names
            if command == "linnet" and mine and b"LN_TEST_JOB=%d" % id(self) in names:
                return int(pid)
        return 0

    def wait_for(self, what, done):
        end = time.monotonic() + LIMIT
        while not done():
            assert self.process.poll() is None, f"the job ended before {what}: {self.text(self.err)}"
            assert time.monotonic() < end, f"no {what}: {self.text(self.err)}"
            time.sleep(0.02)

    def end(self):
        """Waits for the end; returns exit code, stdout and stderr."""
        try:
            code = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"the job hangs: {self.text(self.err)}") from None
        result = code, self.text(self.out), self.text(self.err)
        self.out.close(), self.err.close()
        return result

    def stop(self):
        for number in range(8):
            pid = self.rank(number)
            if pid:
                os.kill(pid, signal.SIGKILL)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Local:
    """Ranks of this machine."""

    name = "one host"
    killed = "rank 1"  # in what the launcher says of a rank that was killed

    def __init__(self, folder):
        self.folder, self.n_jobs = folder, 0

    def command(self, n, names):
        return ["mpirun", "--oversubscribe", "--bind-to", "none", *self.export(names), "-n", str(n)]

    @staticmethod
    def export(names):
        return [x for name in names for x in ("-x", name)]

    def start(self, n, command, **more):
        self.n_jobs += 1
        job = Job.__new__(Job)
        env = dict(ENV, LN_TEST_JOB=str(id(job)), **more)
        Job.__init__(job, self.command(n, ["LN_TEST_JOB", *more]) + command, env, f"{self.folder}/{self.n_jobs}.out", f"{self.folder}/{self.n_jobs}.err")
        return job

    def run(self, n, command, **more):
        return self.start(n, command, **more).end()


class Mpich(Local):
    """Ranks of this machine over MPICH, which has the standard ABI of MPI 5, from PyPI."""

    name = "MPICH"
    killed = "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"

    def __init__(self, folder):
        super().__init__(folder)
        self.prefix = folder + "/mpich"
        try:
            subprocess.run([sys.executable, "-m", "venv", self.prefix], check=True, capture_output=True)
            subprocess.run([self.prefix + "/bin/pip", "install", "-q", "mpich>=5"], check=True, capture_output=True)
        except subprocess.CalledProcessError:
            skip("MPICH cannot be had from PyPI: the standard ABI of MPI is NOT tested")

    def command(self, n, names):
        return ["env", f"LD_LIBRARY_PATH={self.prefix}/lib", self.prefix + "/bin/mpiexec", "-n", str(n)]


class TwoHosts(Local):
    """Rank 0 on the first host, all others on the second."""

    name = "two hosts"
    net = "10.213.77.0/24"

    def __init__(self, folder):
        super().__init__(folder)
        self.holders = []
        try:
            self.hosts = [self.host(name) for name in ("linnet-a", "linnet-b")]
            self.connect()
        except (OSError, subprocess.CalledProcessError) as e:
            self.close()
            skip(f"network namespaces are not allowed here ({e}): ranks on two hosts are NOT tested")

    def host(self, name):
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep infinity"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.holders.append(holder)
        if holder.stdout.readline() != b"\n":
            raise OSError("unshare failed")
        self.on(holder.pid, "hostname", name)
        self.on(holder.pid, "ip", "link", "set", "lo", "up")
        self.on(holder.pid, "mount", "-t", "tmpfs", "none", "/dev/shm")
        os.makedirs(f"{self.folder}/own", exist_ok=True)  # the temporary files of a host
        self.on(holder.pid, "mount", "-t", "tmpfs", "-o", "size=32m", "none", f"{self.folder}/own")
        return holder.pid

    def on(self, host, *command):
        subprocess.run([*self.enter(host), *command], check=True, capture_output=True)

    @staticmethod
    def enter(host):
        return ["nsenter", "-t", str(host), "--net", "--uts", "--mount"]

    def connect(self):
        a, b = self.hosts
        subprocess.run(["ip", "link", "add", "lnranks", "netns", str(a), "type", "veth", "peer", "name", "lnranks", "netns", str(b)],
                       check=True, capture_output=True)
        for i, host in enumerate(self.hosts):
            self.on(host, "ip", "addr", "add", f"10.213.77.{i + 1}/24", "dev", "lnranks")
            self.on(host, "ip", "link", "set", "lnranks", "up")
        self.agent = f"{self.folder}/agent"
        with open(self.agent, "w") as f:  # mpirun calls it as ssh: HOST COMMAND...
            f.write(f'#!/bin/sh\nshift\nexport TMPDIR={self.folder}/own\nexec {" ".join(self.enter(b))} sh -c "$*"\n')
        os.chmod(self.agent, 0o755)

    def command(self, n, names):
        options = {"plm_rsh_agent": self.agent, "btl": "tcp,self", "btl_tcp_if_include": self.net, "oob_tcp_if_include": self.net,
                   "orte_tmpdir_base": f"{self.folder}/own"}
        return [*self.enter(self.hosts[0]), "mpirun", "--bind-to", "none", *(x for k, v in options.items() for x in ("--mca", k, v)),
                *self.export(names), "--host", f"10.213.77.1:1,10.213.77.2:{n - 1}", "-n", str(n)]

    def cut(self):
        """Takes the network away, for good."""
        self.on(self.hosts[1], "ip", "link", "set", "lnranks", "down")

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
