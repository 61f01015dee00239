"""A picture's edge map with onnxruntime, numpy and pillow; no PyTorch, no knifeedge.

knifeedge export runs/first --out edges.onnx
python examples/onnx_predict.py edges.onnx photo.jpg map.png
"""

import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def main(model: str, picture: str, out: str) -> None:
    session = onnxruntime.InferenceSession(model)
    upright = ImageOps.exif_transpose(Image.open(picture)).convert("RGB")
    image = np.asarray(upright, np.float32).transpose(2, 0, 1)[None] / 255
    (probability,) = session.run(None, {"image": image})
    Image.fromarray((probability[0, 0] * 255).round().astype(np.uint8)).save(out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(f"usage: {sys.argv[0]} MODEL.onnx PICTURE MAP.png")
    main(*sys.argv[1:])
