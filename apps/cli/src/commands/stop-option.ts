import { Option } from 'commander';

/** `--stop <text>`, repeatable: what the doors call stopStrings. */
export const stopOption = (): Option =>
  new Option('--stop <text>', 'end a completion before this text; may be given several times').argParser(
    (text: string, earlier: string[] = []) => [...earlier, text],
  );
