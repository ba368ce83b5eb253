/** Who acts where nobody asked, or where the asker named nobody. */
export const ORCHESTRATOR_ACTOR = 'app:orchestrator';
