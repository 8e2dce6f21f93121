import { initialState, type UiState } from './ui-state.ts'

/** The one state, and who is told of its changes. */
export class Store {
  #state: UiState = initialState
  readonly #changed: () => void

  constructor(changed: () => void) {
    this.#changed = changed
  }

  get state(): UiState {
    return this.#state
  }

  /** Puts these in place of what they were. */
  set(part: Partial<UiState>): void {
    this.#state = { ...this.#state, ...part }
    this.#changed()
  }
}
