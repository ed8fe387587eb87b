// Answers by the server while it is there, and from the cache while it is not.

const CACHE = "fewshot";
const FILES = ["./", "page.css", "more.css", "page.js", "worker.js", "gpu.js", "fewshot_web.js", "fewshot_web_bg.wasm"];
if (navigator.gpu) FILES.push("fewshot_web_gpu.js", "fewshot_web_gpu_bg.wasm");

self.oninstall = (event) => event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
self.onactivate = (event) => event.waitUntil(self.clients.claim());

async function answer(request) {
  const cache = await caches.open(CACHE);
  try {
    const fresh = await fetch(request);
    if (fresh.ok) await cache.put(request, fresh.clone());
    return fresh;
  } catch (error) {
    const stored = await cache.match(request, { ignoreSearch: true });
    if (stored) return stored;
    throw error;
  }
}

self.onfetch = (event) => {
  const { method, url } = event.request;
  if (method === "GET" && new URL(url).origin === location.origin) event.respondWith(answer(event.request));
};
