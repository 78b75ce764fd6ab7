"""The texts that the tokenizer goldens are trained and tried on."""

import random

WORLD = """
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Größe, Äpfel, Übung, Straße.
Tous les êtres humains naissent libres et égaux en dignité et en droits. Où est le garçon ?
Все люди рождаются свободными и равными в своем достоинстве и правах.
يولد جميع الناس أحرارا متساوين في الكرامة والحقوق
人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
Πάντες οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
I'm sure you're right: we've said it's what they'd do, he'll see, and it isn't 1234567890.
😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️ → ≤ ∑ π ½ ² Ⅷ
"""

TEXTS = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\t",
    "a",
    " a",
    "a ",
    "  a  ",
    "Hello, world!",
    "Hello  world   with    runs     of spaces",
    "The quick brown fox jumps over the lazy dog.",
    "trailing spaces   ",
    "trailing newline\n",
    "trailing both \n ",
    "\n\nstarts with newlines",
    "a\n\n\nb\n \n c\r\nd\re",
    "tab\tseparated\t\tvalues\t\n",
    "   indented\n        more\n\tand a tab",
    " \n \t \r\n x",
    "x\u00a0y\u2003z\u3000w\u2028v\u0085u\u1680t",
    "\u00a0\u00a0x",
    "I'm you're we've it's they'd he'll isn't can't",
    "I'M YOU'RE WE'VE IT'S THEY'D HE'LL ISN'T",
    "'s 't 're 've 'm 'll 'd 'S 'Re 'lL 'D",
    "'x ''s '''re 'sssss 'l 'le 'r 'v",
    "don\u2019t \u2018quote\u2019",
    "'\u017f it'\u017f '\u017fa",
    "0 1 12 123 1234 12345 1234567890",
    "3.14159 -2.5e10 1,000,000 0x7fff 1st 2nd",
    "12ab34 a1b2c3 v2.0.1",
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \uff11\uff12\uff13",
    "\u00bd \u00b2 \u2167 \u2460 x\u00b2y\u00b3",
    "caf\u00e9 cafe\u0301 nai\u0308ve \u00e5 \u212b A\u030a",
    "q\u0323\u0307 q\u0307\u0323 \u1e0b\u0323 \u0344",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\u1100\u116e\u11a8",
    "\u0301 starts with a mark",
    "Z\u0351\u036b\u0343a\u0325\u0356l\u035cg\u0359o",
    "你好,世界!这是一个测试。",
    "日本語のテキスト、カタカナとひらがな。",
    "한국어 텍스트입니다.",
    "مرحبا بالعالم ١٢٣",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "Привет, мир! Ёлка",
    "Γειά σου Κόσμε",
    "Straße GRÖSSE İstanbul ıi ǅ",
    "😀😃😄",
    "👨\u200d👩\u200d👧\u200d👦 👍🏽 🏳️\u200d🌈 🇩🇪🇫🇷",
    "text😀emoji 😀 \u2764\ufe0f",
    "\U0001d504\U0001d52b \U00020000 \U0010ffff \ue000",
    "\ufeffbom \u200bzero\u200c\u200dwidth \u00ad",
    "a\x00b\x01c\x7f",
    "\x1b[31mred\x1b[0m",
    "!!! ??? ... --- *** ((()))",
    "a+b=c; x<y && z>w || !q",
    "#include <stdio.h>\nint main(void) {\n  return 0;\n}\n",
    "def f(x):\n\treturn x ** 2  # square\n",
    '{"key": [1, 2.5, null, "v\\n"]}',
    "https://example.com/path?q=1&r=2#frag user@mail.org",
    "C:\\path\\file.txt ~/x_y-z",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidociousantidisestablishmentarianism",
    "=" * 70,
    " " * 70,
    "\n" * 30,
    "ab" * 60,
    "\u2581 \u2581\u2581x a\u2581b",
    "<0x41> <0x0A> <unk> <s> </s>",
    "<s>Hello</s>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>",
    "a<|endoftext|>b <|endoftext|> c",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<|im_start|im_end|> <|im_end <|im_end||>",
    "<tool_call>\n{}\n</tool_call>",
    "x<tool_call>y <tool_call> z",
    "[INST] Hi [/INST] there",
    "mask   <mask>   here<mask>",
    "oneword twoword one oneone wordone",
    "ends with special </s>",
    "</s> starts with special",
    "<s> <s>  <s>",
]


def random_texts(count, length):
    rng = random.Random(20240607)
    pools = [
        "abcdefghijklmnopqrstuvwxyz",
        "ABCXYZ",
        "0123456789",
        "     \t\n\r",
        "'\".,:;!?-_()<>|",
        "éüñçßøÅŁž\u0301\u0323\u0308",
        "бгджфЯ",
        "漢字かなカナ",
        "한글",
        "اردو",
        "\u00a0\u2009\u3000",
        "😀👍🏽\u200d\ufe0f",
        "½²Ⅷ٣५",
    ]
    for _ in range(count):
        yield "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, length)))
