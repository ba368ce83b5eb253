/** A small seeded generator (mulberry32): tests draw the same values everywhere. */
export class Random {
  constructor(private state: number) {}

  /** In [0, 1). */
  unit(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** In [low, high]. */
  integer(low: number, high: number): number {
    return low + Math.floor(this.unit() * (high - low + 1));
  }

  tokens(count: number, vocabulary: number): Int32Array {
    return Int32Array.from({ length: count }, () => this.integer(3, vocabulary - 1));
  }

  floats(count: number, low: number, high: number): Float32Array {
    return Float32Array.from({ length: count }, () => low + (high - low) * this.unit());
  }
}
