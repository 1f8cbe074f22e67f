#!/usr/bin/env python3
"""serve_load.py URL [options]: asks a `bert serve` from several connections at once and prints one line of JSON.

  build/bert serve --checkpoint runs/phase2 --port 8080 &
  tests/bench/serve_load.py http://127.0.0.1:8080 --clients 8 --words 126 --seconds 20

Each client keeps one connection and asks again as soon as it has its answer. --slow N adds N clients that send the begin of a
request and then nothing, again whenever the server cuts them. --hostile N adds N clients that send broken bodies: no JSON, JSON that is
nested deeply, wrong types, a length that is too large, broken chunks, and half a body before they leave.
"""
import argparse, http.client, itertools, json, socket, sys, threading, time
from urllib.parse import urlsplit


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--texts", type=int, default=1, help="texts of a request")
    parser.add_argument("--words", type=int, default=8, help="times that the word stands in a text, beside one [MASK] for fill-mask")
    parser.add_argument("--word", default="the")
    parser.add_argument("--features", action="store_true", help="the server's task is features: no [MASK]")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warmup", type=float, default=2)
    parser.add_argument("--slow", type=int, default=0)
    parser.add_argument("--hostile", type=int, default=0)
    given = parser.parse_args()
    host, port = urlsplit(given.url).hostname, urlsplit(given.url).port
    text = " ".join([given.word] * given.words + ([] if given.features else ["[MASK]"]))
    body = json.dumps({"inputs": text if given.texts == 1 else [text] * given.texts})
    fields = {"Content-Type": "application/json"}
    begin = time.perf_counter() + given.warmup
    end = begin + given.seconds
    times, statuses, lock = [], {}, threading.Lock()
    sent = [0] * given.hostile

    def good():
        connection = http.client.HTTPConnection(host, port, timeout=120)
        mine, counts = [], {}
        while (start := time.perf_counter()) < end:
            connection.request("POST", "/predict", body, fields)
            response = connection.getresponse()
            response.read()
            done = time.perf_counter()
            counts[response.status] = counts.get(response.status, 0) + 1
            if response.status == 200 and begin <= done <= end:
                mine.append(done - start)
        with lock:
            times.extend(mine)
            for status, count in counts.items():
                statuses[status] = statuses.get(status, 0) + count

    def slow():
        while time.perf_counter() < end:
            try:
                with socket.create_connection((host, port)) as held:
                    held.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n")
                    held.settimeout(max(0.1, end - time.perf_counter()))
                    while held.recv(4096):
                        pass
            except OSError:
                time.sleep(0.01)

    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    whole = lambda data: head + b"Content-Length: %d\r\n\r\n" % len(data) + data
    broken = [whole(b"{"), whole(b"[" * 100_000), whole(b'{"inputs": 3}'), whole(b'{"inputs": "' + b"\xff" * 1000 + b'"}'),
              whole(b'{"inputs": ' + b'"' + b"a " * 200_000 + b'"}'), head + b"Content-Length: 99999999999\r\n\r\nx",
              head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", head + b"Content-Length: 1000\r\n\r\n{\"inputs\"",
              b"\0" * 1000, b"GET " + b"/" * 20_000 + b" HTTP/1.1\r\n\r\n"]

    def hostile(first):
        for data in itertools.islice(itertools.cycle(broken), first, None):
            if time.perf_counter() >= end:
                return
            try:
                with socket.create_connection((host, port), timeout=1) as connection:
                    connection.sendall(data)
                    sent[first] += 1
                    connection.recv(4096)
            except OSError:
                pass
            time.sleep(0.05)

    for _ in range(given.slow):
        threading.Thread(target=slow, daemon=True).start()
    for i in range(given.hostile):
        threading.Thread(target=hostile, args=(i,), daemon=True).start()
    clients = [threading.Thread(target=good) for _ in range(given.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if not times:
        sys.exit(f"no answer in time; statuses: {statuses}")
    times.sort()
    at = lambda share: round(1e3 * times[min(len(times) - 1, int(share * len(times)))], 2)
    print(json.dumps({"clients": given.clients, "texts": given.texts, "slow": given.slow, "hostile": given.hostile,
                      "hostile_bodies": sum(sent), "requests": len(times),
                      "texts_per_second": round(len(times) * given.texts / given.seconds, 2), "p50_ms": at(0.5), "p90_ms": at(0.9),
                      "p99_ms": at(0.99), "statuses": statuses}))


main()
