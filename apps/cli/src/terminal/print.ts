let json = false;

/** `--json` was given: answers are one JSON document. */
export function printJson(on: boolean): void {
  json = on;
}

export function isJson(): boolean {
  return json;
}

/** Prints an answer as JSON or as text for people. */
export function print(value: unknown, text: () => string): void {
  process.stdout.write(`${json ? JSON.stringify(value, null, 2) : text()}\n`);
}
