import { openSeats } from '@reve/mcp-server'
import type { Command } from '../arguments.ts'
import { rootOf } from '../environment.ts'
import { exitCode } from '../exit-codes.ts'
import type { Context } from '../run-command.ts'

/** `kc seat …`; works beside a server, which reads its seats from the database at each call. */
export async function seat(
  { env, result, note }: Context,
  command: Extract<Command, { readonly type: 'seat' }>,
): Promise<number> {
  await using seats = await openSeats(rootOf(env, command.root))
  switch (command.action) {
    case 'list': {
      const all = seats.list()
      if (command.json) result(JSON.stringify(all))
      else if (all.length === 0) note('this computer has no seats; kc seat create <name> makes one')
      else
        result(
          all
            .map(({ name, createdAt, identity }) => `${name}  since ${createdAt}  ${oneLine(identity)}`.trimEnd())
            .join('\n'),
        )
      return exitCode.done
    }
    case 'create':
    case 'rekey': {
      const { token } = command.action === 'create' ? seats.create(command.name) : seats.rekey(command.name)
      note(`the token of the seat ${command.name}, shown once; send it as "Authorization: Bearer <token>":`)
      result(token)
      return exitCode.done
    }
    case 'remove':
      seats.remove(command.name)
      result(`removed the seat ${command.name}; its token is worth nothing now`)
      return exitCode.done
    default:
      return command satisfies never
  }
}

/** A seat writes its identity itself: it must not look like another row. */
const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ').slice(0, 60)
