/** A small deterministic generator (splitmix32): the same seed gives the same benchmark on every machine. */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** Uniform in 0 .. 2^32 - 1. */
  word(): number {
    this.state = (this.state + 0x9e3779b9) >>> 0;
    let z = this.state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  /** An integer in low .. high, both included. */
  integer(low: number, high: number): number {
    return low + (this.word() % (high - low + 1));
  }

  /** Uniform in low .. high. */
  real(low: number, high: number): number {
    return low + (high - low) * (this.word() / 2 ** 32);
  }

  pick<T>(items: readonly T[]): T {
    return items[this.word() % items.length] as T;
  }

  chance(probability: number): boolean {
    return this.word() < probability * 2 ** 32;
  }

  list<T>(length: number, make: () => T): T[] {
    return Array.from({ length }, make);
  }

  /** An unsigned 64-bit integer as a decimal string. */
  seed(): string {
    return ((BigInt(this.word()) << 32n) | BigInt(this.word())).toString();
  }
}
