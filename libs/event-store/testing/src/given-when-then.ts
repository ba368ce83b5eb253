import { DomainError, type AnyNewEvent } from '#hotbed/contracts';

/** The part of an event that a decider's tests speak of. */
export type Fact = { [E in AnyNewEvent as E['type']]: Pick<E, 'type' | 'payload'> }[AnyNewEvent['type']];

export interface DeciderUnderTest<State, Command> {
  initialState: State;
  evolve(state: State, event: AnyNewEvent): State;
  decide(command: Command, state: State): readonly AnyNewEvent[];
}

/**
 * given(events).when(command).then(facts) or .thenError(kind, code), for pure deciders.
 * @example const given = specificationOf(experimentDecider); given(created).when(start).then({ type: 'ExperimentStarted', payload });
 */
export function specificationOf<State, Command>(decider: DeciderUnderTest<State, Command>) {
  return (...history: readonly AnyNewEvent[]) => ({
    when(command: Command) {
      const decide = (): readonly AnyNewEvent[] =>
        decider.decide(
          command,
          history.reduce((state, event) => decider.evolve(state, event), decider.initialState),
        );
      return {
        then(...facts: readonly Fact[]): void {
          expect(decide().map(({ type, payload }) => ({ type, payload }))).toEqual(facts);
        },
        thenError(kind: DomainError['kind'], code: string): void {
          let thrown: unknown = null;
          try {
            decide();
          } catch (error) {
            thrown = error;
          }
          expect(thrown).toBeInstanceOf(DomainError);
          expect(thrown).toMatchObject({ kind, code });
        },
      };
    },
  });
}
