# SPDX-License-Identifier: Apache-2.0
"""A program on cards, run by tests: `use_card.py IMAGE CARDS` writes into a P2P buffer of each and reads it back."""

import json
import sys

from kvdrive.xrt.single import provider

xrt = provider()
image, cards = sys.argv[1], int(sys.argv[2])
described = xrt.xclbin(image)
found: dict = {
    "platform": described.get_xsa_name(),
    "kernels": [kernel.get_name() for kernel in described.get_kernels()],
    "arguments": [kernel.get_num_args() for kernel in described.get_kernels()],
    "banks": [bank.get_tag() for bank in described.get_mems()],
    "read": [],
}
devices = [xrt.device(number) for number in range(cards)]
for number, device in enumerate(devices):
    uuid = device.load_xclbin(image)
    kernel = xrt.kernel(device, uuid, found["kernels"][0])
    buffer = xrt.bo(device, 8192, xrt.bo.flags.p2p, kernel.group_id(0))
    buffer.map()[:4] = bytes([number + 1] * 4)
    part = xrt.bo(buffer, 4096, 0)
    found["read"].append([part.read(4, 0)[0], buffer.map()[3], device.get_info(xrt.xrt_info_device.name)])
    del part, buffer, kernel
print(json.dumps(found))
