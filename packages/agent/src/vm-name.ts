import { createHash } from 'node:crypto'
import { basename } from 'node:path'

/**
 * The name of an agent's VM, told from its real path: two agents never share one, and a copied folder gets another.
 *
 * @param root real path of the agent's folder.
 */
export function vmName(root: string): string {
  const label =
    basename(root)
      .replaceAll(/[^A-Za-z0-9_-]/g, '-')
      .slice(0, 32) || 'agent'
  return `reve-${label}-${createHash('sha256').update(root).digest('hex').slice(0, 10)}`
}
