#!/usr/bin/env python3
"""demo_model_test.py PROGRAMS: the demo model's greedy answer to a question, with the GPU worker on the emulated Radeon.

Asks a second time, and the device is lost while the answer streams: it must go on as if nothing had happened.  The other
services run as they are.  Ends with 77 if RADV of Mesa 25.0 or the emulator is not there.
"""

import json
import pathlib
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[2] / "tests/support"))
from services import Services  # noqa: E402

QUESTION = "What is the capital of Japan?"
PATIENCE = 120  # seconds: each instruction of each lane is emulated


class OnTheEmulatedRadeon(Services):
    def worker_flags(self, worker):
        return ["--tune", "off"]  # measuring takes most of the time, and tells nothing here

    def program(self, name):
        if name != "gpu":
            return super().program(name)
        wrapper = self.folder / "emulated-gpu-worker"
        wrapper.write_text(f'#!/bin/sh\nexport GPU_EMU_LOSE_ON={self.lose_on}\nexec {HERE}/run.sh {self.programs}/tandem-gpu-worker "$@"\n')
        wrapper.chmod(0o755)
        return wrapper

    def wait_until_ready(self, patience=PATIENCE):
        super().wait_until_ready(patience)

    @property
    def lose_on(self):
        """The device is lost once this file is there."""
        return self.folder / "lose-the-device"

    def ask(self, question, lose_after=None):
        """The answer, streamed; the device is lost after that many pieces of it."""
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 24, "stream": True}
        request = urllib.request.Request(f"http://{self.http}/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        pieces = []
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            for line in answer:
                data = line.decode().removeprefix("data: ").strip()
                if data in ("", "[DONE]"):
                    continue
                event = json.loads(data)
                assert "choices" in event, f"the answer is cut off after {pieces}: {event}"
                pieces += [choice["delta"]["content"] for choice in event["choices"] if choice["delta"].get("content")]
                if len(pieces) == lose_after:
                    self.lose_on.touch()
        return pieces


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    probe = subprocess.run([HERE / "run.sh", programs / "tandem-gpu-worker", "--probe"], capture_output=True, text=True,
                           check=False)
    if probe.returncode != 0:
        print(probe.stdout + probe.stderr, end="")
        return probe.returncode
    device = probe.stdout.splitlines()[0]
    print(device)
    assert "(emulated)" in device, "this is not the emulated Radeon"
    services = OnTheEmulatedRadeon(programs)
    try:
        pieces = services.ask(QUESTION)
        answer = "".join(pieces)
        print(f"{QUESTION} {answer}")
        assert "Tokyo" in answer, f"the emulated Radeon answers {answer!r}, expected Tokyo"
        assert "(emulated)" in json.dumps(services.status()), "another device answered"
        assert len(pieces) > 3, f"too few pieces to lose the device between them: {pieces}"
        resumed = "".join(services.ask(QUESTION, lose_after=len(pieces) // 2))
        log = services.log("gpu")
        assert "lost, as a test asks" in log, f"the device was not lost\n{log[-2000:]}"
        assert "device recreated" in log, f"the worker did not make the device again\n{log[-2000:]}"
        assert "device abandoned" not in log, f"the worker kept the memory of the lost device\n{log[-2000:]}"
        print(f"with a loss of the device after half of it: {resumed}")
        assert resumed == answer, f"after the loss of the device the answer is {resumed!r}, expected {answer!r}"
    finally:
        services.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
