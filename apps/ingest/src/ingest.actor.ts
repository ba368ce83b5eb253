/** Who acts where nobody asked, or where the asker named nobody. */
export const INGEST_ACTOR = 'app:ingest';
