import type { MicroVmEvent, MicroVmStage } from './spec.ts'

/** Tells whoever listens what happens. */
export type Progress = {
  notice(text: string): void
  /** Runs `work` as a stage: its start, how far it is, its end and its time are told. */
  stage<T>(stage: MicroVmStage, label: string, work: (say: (label: string) => void) => Promise<T>): Promise<T>
}

/** Events for `onEvent`; `now` gives the times. The same notice is told once. */
export function createProgress(onEvent: ((event: MicroVmEvent) => void) | undefined, now: () => number): Progress {
  const told = new Set<string>()
  return {
    notice: (text) => {
      if (told.has(text)) return
      told.add(text)
      onEvent?.({ type: 'notice', text })
    },
    stage: async (stage, label, work) => {
      const startedAt = now()
      onEvent?.({ type: 'stage', stage, state: 'start', label })
      try {
        const result = await work((text) => onEvent?.({ type: 'stage', stage, state: 'progress', label: text }))
        onEvent?.({ type: 'stage', stage, state: 'done', label, ms: now() - startedAt })
        return result
      } catch (error) {
        onEvent?.({ type: 'stage', stage, state: 'failed', label, ms: now() - startedAt })
        throw error
      }
    },
  }
}
