// SPDX-License-Identifier: BSD-2-Clause
import { defineConfig } from "vite";

// Nothing is inlined: the Content-Security-Policy allows loading from stagd only.
export default defineConfig({
  base: "/",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 300,
  },
  // `npm run dev` beside a stagd: STAG_API=http://127.0.0.1:7180
  server: { proxy: { "/api": process.env.STAG_API ?? "http://127.0.0.1:7180" } },
});
