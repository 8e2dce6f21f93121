/** The agent of the demonstration: a small image without a network, one Lua tool, and a scripted model. */
export const agentFiles = (model: string): Readonly<Record<string, string>> => ({
  'agent.lua': `agent { model = ${JSON.stringify(model)}, thinking = "low" }\n`,
  'sandbox.lua': `sandbox {
  image = "debian:trixie-slim",
  packages = { "git", "python3" },
  cpus = 2,
  memory = 1024,
}
`,
  'tools/changes.lua': `tool("changes", {
  description = "What changed in the working tree since the last commit",
  replay = "safe",
  run = function(args, ctx)
    return ctx.sh("git -c safe.directory='*' diff --stat")
  end,
})
`,
  'models.yml': `providers:
  demo:
    api: scripted
    models:
      - id: scripted
        script: demo.script.yml
  openai:
    baseUrl: https://api.openai.com/v1
    api: openai-responses
    apiKey: $OPENAI_API_KEY
    models:
      - { id: gpt-5.6-luna, reasoning: true, contextWindow: 200000, maxTokens: 8192 }
  anthropic:
    baseUrl: https://api.anthropic.com
    api: anthropic-messages
    apiKey: $ANTHROPIC_API_KEY
    models:
      - { id: claude-opus-5, reasoning: true, contextWindow: 200000, maxTokens: 16384 }
`,
  // One turn for each request to the model: the n-th answers the conversation that has n-1 answers in it.
  'demo.script.yml': `- text: Let me see what the test asks for.
  calls:
    - { name: read, arguments: { path: test_words.py } }
- text: And what it does today.
  calls:
    - { name: bash, arguments: { command: python3 -m unittest 2>&1 } }
- text: Only blanks separate words here; any white space should.
  calls:
    - name: edit
      arguments:
        path: words.py
        old: text.split(" ")
        new: text.split()
- calls:
    - { name: bash, arguments: { command: python3 -m unittest 2>&1 } }
- calls:
    - { name: changes }
- text: "The test passes: words.py splits at any white space now. One line changed."
- text: I start the slow check.
  calls:
    - { name: bash, arguments: { command: sh slow-check.sh } }
- text: That was interrupted, so I do not know how far it came. I look before I say anything about it.
  calls:
    - { name: bash, arguments: { command: "cat slow-check.log; python3 -m unittest 2>&1 | tail -n 1" } }
- text: The slow check was cut off half way and did not finish; the unit tests pass. Nothing was run twice behind your back.
`,
})

/** A small project with one failing test. */
export const projectFiles: Readonly<Record<string, string>> = {
  'words.py': `def count_words(text):
    return len(text.split(" "))
`,
  'test_words.py': `import unittest
from words import count_words


class CountWords(unittest.TestCase):
    def test_one_line(self):
        self.assertEqual(count_words("a b c"), 3)

    def test_line_feeds_separate_words(self):
        self.assertEqual(count_words("a b\\nc"), 3)
`,
  'slow-check.sh': `echo "slow check: started" >slow-check.log
sleep 30
echo "slow check: done" >>slow-check.log
`,
}
