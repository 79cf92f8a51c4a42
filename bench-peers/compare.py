"""Compares NBD servers: server CPU per I/O, IOPS and latency, interleaved over several rounds.

Judge by CPU per I/O: IOPS depend on what else the machine does. CPU is utime + stime of the server's process, all of
its threads, from /proc/PID/stat, divided by the I/Os that fio completed.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SIZE_BYTES = 1 << 30
# (title, pattern for fio, depth, the figure that the goal is about)
JOBS = [
    ("4 KiB random reads, depth 32", "randread", 32, "cpu_us"),
    ("4 KiB random writes, depth 32", "randwrite", 32, "cpu_us"),
    ("4 KiB random reads, depth 1", "randread", 1, "p50_us"),
]
OURS = "plimsoll"


def servers(arguments, backing, directory):
    """Command lines by name; {socket} is filled in later."""
    commands = {}
    if backing == "memory":
        commands[OURS] = [arguments.serve, "{socket}", arguments.scheduler, f"memory:{SIZE_BYTES}B"]
        commands["nbdkit"] = ["nbdkit", "-f", "-U", "{socket}", "memory", str(SIZE_BYTES)]
        path = f"/dev/shm/plimsoll-bench-{os.getpid()}.img"
        qemu = ["--cache=writeback", "--aio=threads"]
    else:
        path = os.path.join(directory, "backing.img")
        commands[OURS] = [arguments.serve, "{socket}", arguments.scheduler, path]
        # nbdkit 1.32 has no O_DIRECT; cache=none drops what it has read or written from the page cache.
        commands["nbdkit"] = ["nbdkit", "-f", "-U", "{socket}", "file", path, "cache=none"]
        qemu = ["--cache=none", "--aio=io_uring"]
    commands["qemu-nbd"] = ["qemu-nbd", "-k", "{socket}", "-f", "raw", "-t", "-e", "8", "-x", "", *qemu, path]
    return commands, path


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fio(uri, pattern, depth, seconds, block="4k", size=SIZE_BYTES):
    command = ["fio", "--name=job", "--ioengine=nbd", f"--uri={uri}", f"--rw={pattern}", f"--bs={block}",
               f"--iodepth={depth}", f"--size={size}", "--randrepeat=0", "--output-format=json"]
    if seconds:
        command += ["--time_based", f"--runtime={seconds}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
    if done.returncode:
        sys.exit(f"fio failed: {done.stderr}{done.stdout}")
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]


def measure(name, command, arguments, directory, fills):
    """Runs one server through all jobs; gives a list of results, one for each job."""
    socket = os.path.join(directory, f"{name}.sock")
    command = [part.format(socket=socket) for part in command]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    uri = f"nbd+unix:///{'volume' if name == OURS else ''}?socket={socket}"
    try:
        while not os.path.exists(socket):
            if server.poll() is not None:
                sys.exit(f"{name} ended at once: {' '.join(command)}")
            time.sleep(0.02)
        if fills:
            fio(uri, "write", 4, 0, block="1m")
        results = []
        for _, pattern, depth, _ in JOBS:
            before = cpu_seconds(server.pid)
            job = fio(uri, pattern, depth, arguments.seconds)
            cpu = cpu_seconds(server.pid) - before
            kind = job["read" if "read" in pattern else "write"]
            results.append({
                "iops": kind["iops"],
                "cpu_us": cpu * 1e6 / kind["total_ios"],
                "p50_us": latency_p50_us(kind),
            })
        return results
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
        if os.path.exists(socket):
            os.unlink(socket)


def latency_p50_us(kind):
    """From submission to completion: fio's nbd engine spends part of it, the system call, in slat."""
    return (kind["slat_ns"]["mean"] + kind["clat_ns"]["percentile"]["50.000000"]) / 1e3


def compare(backing, arguments, directory):
    commands, path = servers(arguments, backing, directory)
    try:
        with open(path, "wb") as file:
            for _ in range(SIZE_BYTES >> 20):
                file.write(os.urandom(4096) * 256)
            os.fsync(file.fileno())
        results = {name: [[] for _ in JOBS] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                measured = measure(name, command, arguments, directory, backing == "memory")
                for job, result in zip(results[name], measured):
                    job.append(result)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return {
        name: [{key: statistics.median(r[key] for r in job) for key in job[0]} for job in jobs]
        for name, jobs in results.items()
    }


def table(backing, medians):
    """Prints the medians and ours as a part of each rival's; gives the judged ratios."""
    ratios = []
    for number, (title, _, _, judged) in enumerate(JOBS):
        print(f"\n{backing}: {title} (judged by {judged})")
        print(f"  {'server':<10} {'IOPS':>9} {'CPU us/IO':>10} {'p50 us':>8} {'ours / theirs':>14}")
        ours = medians[OURS][number]
        for name, jobs in medians.items():
            theirs = jobs[number]
            ratio = ours[judged] / theirs[judged] if theirs[judged] else float("nan")
            shown = "" if name == OURS else f"{ratio:.2f}"
            print(f"  {name:<10} {theirs['iops']:>9.0f} {theirs['cpu_us']:>10.2f} {theirs['p50_us']:>8.1f} {shown:>14}")
            if name != OURS:
                ratios.append({"backing": backing, "job": title, "rival": name, "judged": judged, "ratio": ratio})
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", required=True, help="Plimsoll's smallest server, crates/serve/examples/serve.rs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each job")
    parser.add_argument("--scheduler", default="zygaria")
    parser.add_argument("--backings", default="memory,file", help="which of memory and file")
    parser.add_argument("--directory", default=".", help="where the backing file lies: a file system with O_DIRECT")
    parser.add_argument("--json", help="writes the medians and ratios there")
    arguments = parser.parse_args()
    report = {"rounds": arguments.rounds, "seconds": arguments.seconds, "medians": {}, "ratios": []}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for backing in arguments.backings.split(","):
            medians = compare(backing, arguments, os.path.abspath(directory))
            report["medians"][backing] = medians
            report["ratios"] += table(backing, medians)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
