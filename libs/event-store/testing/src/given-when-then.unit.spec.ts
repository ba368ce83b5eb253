import { DomainError, newId, type AnyNewEvent } from '#hotbed/contracts';
import { newEvent } from './builders';
import { specificationOf } from './given-when-then';

const ref = { experimentId: newId() };
const started = newEvent('ExperimentStarted', newId(), ref);

const given = specificationOf<{ running: boolean }, 'start'>({
  initialState: { running: false },
  evolve: (state, event: AnyNewEvent) => (event.type === 'ExperimentStarted' ? { running: true } : state),
  decide(_, state) {
    if (state.running) throw new DomainError('IllegalState', 'running', 'it runs already');
    return [started];
  },
});

describe('given, when, then', () => {
  it('compares what was decided with the facts', () => {
    given().when('start').then({ type: 'ExperimentStarted', payload: ref });
    expect(() => given().when('start').then()).toThrow();
    expect(() => given().when('start').thenError('IllegalState', 'running')).toThrow();
  });

  it('decides on the state that the history leads to', () => {
    given(started).when('start').thenError('IllegalState', 'running');
    expect(() => given(started).when('start').thenError('Conflict', 'running')).toThrow();
  });
});
