#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One member of PyTorch's gloo all-reduce, the peer wan.py measures beside bench_exchange_member.

  gloo_member.py --member 0 --members 2 --address 10.0.0.1 --interface wan0 --bytes 25000000 --trials 5

Prints a JSON line a trial, with the same fields: seconds from a barrier to the return of the sum.
"""
import argparse
import datetime
import json
import os
import resource
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--member", type=int, required=True)
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--address", required=True, help="of member 0")
    parser.add_argument("--port", type=int, default=29500)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--bytes", type=int, default=25_000_000)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--warm-ups", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--patience", type=float, default=300)
    args = parser.parse_args()

    os.environ["GLOO_SOCKET_IFNAME"] = args.interface
    import torch  # after the arguments: it takes seconds
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{args.address}:{args.port}", rank=args.member,
                            world_size=args.members,
                            timeout=datetime.timedelta(seconds=args.patience))
    values = torch.empty(args.bytes // 4)
    for trial in range(-args.warm_ups, args.trials):
        values.fill_(args.member)
        time.sleep(args.pause)
        dist.barrier()
        before = resource.getrusage(resource.RUSAGE_SELF)
        begin = time.monotonic()
        dist.all_reduce(values)
        end = time.monotonic()
        after = resource.getrusage(resource.RUSAGE_SELF)
        want = args.members * (args.members - 1) / 2
        if values[0].item() != want or values[-1].item() != want:
            raise SystemExit(f"error: member {args.member}: sum {values[0].item()}, want {want}")
        if trial >= 0:
            print(json.dumps({"bench": "exchange", "member": args.member, "members": args.members,
                              "trial": trial, "codec": "fp32", "bytes": args.bytes,
                              "seconds": round(end - begin, 4), "begin_s": round(begin, 4),
                              "end_s": round(end, 4), "user_s": round(after.ru_utime - before.ru_utime, 4),
                              "system_s": round(after.ru_stime - before.ru_stime, 4),
                              "switches": after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw,
                              "faults": after.ru_minflt - before.ru_minflt}), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # else its threads end the process as they like


if __name__ == "__main__":
    main()
