"""Tokenizer and chat template of a target."""


class Text:
    def __init__(self, tokenizer, template, bos, eos):
        self.tokenizer, self.template, self.bos, self.eos = tokenizer, template, bos, eos
        self._compiled = None

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def render(self, messages):
        """Messages `{role, content}` up to where the assistant is to go on; without a template just their texts."""
        if not self.template:
            return "\n".join(m["content"] for m in messages)
        if self._compiled is None:
            from jinja2.sandbox import ImmutableSandboxedEnvironment

            def fail(message):
                raise ValueError(message)

            environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            environment.globals["raise_exception"] = fail
            self._compiled = environment.from_string(self.template)
        return self._compiled.render(messages=messages, add_generation_prompt=True, bos_token=self.bos, eos_token=self.eos)

    def prompt(self, messages):
        return self.encode(self.render(messages))
