#!/usr/bin/env python3
"""serve_embeddings.py CHECKPOINT TEXTS [options]: the rate of `bert serve --task embedding` with 32 clients of mixed lengths, beside the
offline rate of `bert benchmark inference --task embedding` on the same texts. Prints one line of JSON for each.

  tests/bench/serve_embeddings.py all-MiniLM-L6-v2 texts.txt --precision bf16 --infinity infinity-python/bin/infinity_emb

A client keeps one connection, asks POST /v1/embeddings for the vector of one line of TEXTS as base64, and asks for the next line as soon
as it has its answer. One thread plays all clients, so that they take little of the processor. --infinity names the program of
infinity-emb, which then answers the same clients with PyTorch in fp32.
"""
import argparse
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Client:
    """One connection and its request in flight."""

    def __init__(self, port, requests):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests = requests
        self.ask()

    def ask(self):
        self.answer = b""
        self.begin = time.perf_counter()
        self.socket.sendall(next(self.requests))

    def take(self):
        """Reads. True if the answer is whole."""
        part = self.socket.recv(1 << 16)
        if not part:
            sys.exit("the server has ended a connection")
        self.answer += part
        end = self.answer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = self.answer[:end].lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        if len(self.answer) < end + 4 + length:
            return False
        if b" 200 " not in head[:16]:
            sys.exit(self.answer.decode(errors="replace"))
        return True


def measure(port, path, model, texts, given):
    """Texts a second, and the latencies in milliseconds, after a warm-up."""
    def requests():
        number = 0
        while True:
            body = json.dumps({"model": model, "input": texts[number % len(texts)], "encoding_format": "base64"}).encode()
            yield b"POST %s HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
                path.encode(), port, len(body), body)
            number += 1

    asked = requests()
    selector = selectors.DefaultSelector()
    for _ in range(given.clients):
        client = Client(port, asked)
        selector.register(client.socket, selectors.EVENT_READ, client)
    begin = time.perf_counter() + given.warmup
    end = begin + given.seconds
    times = []
    while time.perf_counter() < end:
        for key, _ in selector.select(timeout=1):
            if key.data.take():
                now = time.perf_counter()
                if begin <= now <= end:
                    times.append(now - key.data.begin)
                key.data.ask()
    times.sort()
    at = lambda share: round(1e3 * times[min(len(times) - 1, int(share * len(times)))], 1)
    return {"texts_per_second": round(len(times) / given.seconds, 1), "p50_ms": at(0.5), "p99_ms": at(0.99)}


def with_server(command, ready, use):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            return use(ready(process))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def port_of_bert(process):
    return int(process.stdout.readline().rsplit(":", 1)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("texts", help="a text a line")
    parser.add_argument("--bert", default=os.path.join(ROOT, "build/bert"))
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--warmup", type=float, default=3)
    parser.add_argument("--infinity", help="the program infinity_emb")
    given = parser.parse_args()
    with open(given.texts, encoding="utf-8") as file:
        texts = [line.rstrip("\n") for line in file if line.strip()]
    show = lambda name, figures: print(json.dumps({"server": name, **figures}), flush=True)

    served = with_server([given.bert, "serve", "--checkpoint", given.checkpoint, "--task", "embedding", "--precision", given.precision,
                          "--port", "0", "--name", "model"], port_of_bert,
                         lambda port: measure(port, "/v1/embeddings", "model", texts, given))
    timed = subprocess.run([given.bert, "benchmark", "inference", "--task", "embedding", "--checkpoint", given.checkpoint, "--precision",
                            given.precision, "--input", given.texts, "--json"], capture_output=True, text=True, check=True)
    offline = json.loads(timed.stdout.strip().splitlines()[-1])["sequences_per_second"]
    show("bert " + given.precision, {**served, "offline_texts_per_second": round(offline, 1),
                                     "of_offline": round(served["texts_per_second"] / offline, 3)})
    if given.infinity:
        def ready(_):
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", 7997), timeout=1).close()
                    return 7997
                except OSError:
                    time.sleep(0.2)
            sys.exit("infinity_emb does not answer")

        command = [given.infinity, "v2", "--model-id", given.checkpoint, "--engine", "torch", "--device", "cpu", "--port", "7997",
                   "--served-model-name", "model", "--dtype", "float32", "--no-bettertransformer"]
        show("infinity-emb fp32", with_server(command, ready, lambda port: measure(port, "/embeddings", "model", texts, given)))


main()
