/** How a path names a version: `<adapter>@<alias or version>`, or `<adapter>` alone for `latest`. */
export interface AdapterRef {
  /** Name or id. */
  adapter: string;
  /** null = latest */
  ref: string | null;
}

/** `name@latest` -> name and alias or version; the last `@` counts. */
export function parseAdapterRef(adapterRef: string): AdapterRef {
  const at = adapterRef.lastIndexOf('@');
  return at < 0
    ? { adapter: adapterRef, ref: null }
    : { adapter: adapterRef.slice(0, at), ref: adapterRef.slice(at + 1) };
}
