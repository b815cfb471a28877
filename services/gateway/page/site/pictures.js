// Pictures of the message that is being written: chosen, pasted or dropped, as data: URLs.

import { $, iconButton, make } from "./dom.js";
import { toast } from "./toast.js";

const kTypes = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const kMostBytes = 11 << 20;  // of all in a message: base64 makes 4 bytes of 3, and a request has 16 MiB at most
const kMost = 64;

const kLargeFile = 1 << 20;
const kMostSide = 2048;  // models see less

// Sends a smaller JPEG, upright and over white, for a large file, as of a phone's camera.  A file that the
// browser cannot read stays as it is: the server explains.
async function shrink(file) {
  if (file.size <= kLargeFile) return file;
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return file;
  const scale = Math.min(1, kMostSide / Math.max(bitmap.width, bitmap.height));
  const canvas = new OffscreenCanvas(Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale)));
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  const small = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
  return small.size < file.size ? small : file;
}

const toUrl = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

// Whether a text is a picture as messages keep it.
export const isPicture = (value) => typeof value === "string" && kTypes.some((type) => value.startsWith(`data:${type};base64,`));

// Small pictures of `urls`, with a button to remove each if `onRemove` is given.
export function thumbnails(urls, onRemove = null) {
  return make("div", { class: "pictures" }, ...urls.map((url, i) => {
    const label = urls.length > 1 ? `Picture ${i + 1}` : "Picture";
    return make("span", { class: "picture" }, make("img", { src: url, alt: label }),
      onRemove && iconButton("close", `Remove ${label.toLowerCase()}`, () => onRemove(i)));
  }));
}

export class Pictures {
  // `onChange()` is called when there are more or fewer.
  constructor(onChange) {
    this.onChange = onChange;
    this.urls = [];
    this.reason = "";  // why the server refuses them
    $("attach").addEventListener("click", () => $("attach-file").click());
    $("attach-file").addEventListener("change", async () => {
      await this.add([...$("attach-file").files]);
      $("attach-file").value = "";
      $("prompt").focus();
    });
    $("prompt").addEventListener("paste", (event) => this.take(event, event.clipboardData));
    document.addEventListener("dragover", (event) => {
      if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
    });
    document.addEventListener("drop", (event) => this.take(event, event.dataTransfer));
  }

  // What the server says of its model.
  setModel(model) {
    this.reason = model?.imageTokens > 0 ? "" : (model?.noImagesReason || "This server accepts no pictures.");
    $("attach").hidden = this.reason !== "";
  }

  take(event, data) {
    const files = [...(data?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    this.add(files);
  }

  async add(files) {
    if (this.reason) return toast(this.reason);
    const wrong = files.find((file) => !kTypes.includes(file.type));
    if (wrong) return toast(`${wrong.name} is not a picture that the server reads: PNG, JPEG, WebP, GIF or BMP.`);
    const urls = await Promise.all(files.map(async (file) => toUrl(await shrink(file))));
    const all = [...this.urls, ...urls];
    if (all.length > kMost) return toast(`A message has at most ${kMost} pictures.`);
    if (all.reduce((sum, url) => sum + url.length, 0) > kMostBytes * 4 / 3) {
      return toast(`The pictures of a message have at most ${kMostBytes >> 20} MB together.`);
    }
    this.urls = all;
    this.show();
  }

  // The pictures, which are forgotten here.
  takeAll() {
    const urls = this.urls;
    this.urls = [];
    this.show();
    return urls;
  }

  show() {
    $("attached").hidden = this.urls.length === 0;
    $("attached").replaceChildren(thumbnails(this.urls, (i) => {
      this.urls = this.urls.filter((_, other) => other !== i);
      this.show();
      $("prompt").focus();
    }));
    this.onChange();
  }
}
