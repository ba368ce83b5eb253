export async function runAlone(_file: string): Promise<void> {}
