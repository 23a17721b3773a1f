"""Tools and a template as agents and models have them."""

# As Qwen's: messages, tools and calls between markers.
TEMPLATE = """{%- if tools %}Tools: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}{%- for m in messages %}[{{ m.role }}]{{ m.content }}
{%- for call in m.tool_calls or [] %}<tool_call>
{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "maxProperties": 0}}}
ASK = [{"role": "user", "content": "Rain?"}]
