"""Small templates, each about one rule of the language, and the variables they see."""

VARIABLES = {
    "a": 3,
    "b": 7,
    "z": 0,
    "neg": -5,
    "f": 2.5,
    "big": 1234567890123,
    "t": True,
    "n": None,
    "s": "Hello World",
    "e": "",
    "pad": "  padded \n",
    "uni": "héllo wörld ß Ω 日本 🙂",
    "quo": "it's \"q\" \\ \t\n",
    "html": "<a href=\"x\">'&'</a>",
    "lines": "one\ntwo\n\nthree",
    "l": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"],
    "el": [],
    "nested": [[1, 2], [3, [4, None]], {"k": [True, 1.0]}],
    "d": {"x": 1, "y": "two", "items": "shadow", "zz": {"deep": [10, 20]}},
    "ed": {},
    "msgs": [
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": "Hi <b>", "n": 2},
        {"role": "assistant", "content": None, "n": 1},
        {"role": "user", "content": "Bye"},
    ],
    "num": "42",
    "numf": "3.7",
    "tool": {"type": "function", "function": {"name": "f", "parameters": {"p": [1, 2.0, None]}}},
}

EXPRESSIONS = r"""
1
-1
+1
--1
1.0
1e3
1e16
1e15
123456789012345680.0
1.5e-5
0.0001
0.1 + 0.2
1_000
0x1F
0b101
0o17
00
'a' 'b'
"x\ty\n\u00e9\x41\101\'\""
'\d\é\0'
'\U0001F642'
[]
()
(1,)
(1, 2)
1, 2
[1, 'a', 2.0, None, True, (1,), {'k': [1]}]
{}
{'a': 1, 'b': [1, 2], 3: 4, None: 5, (1, 2): 6, 1.5: 7}
{'a': 1, 'a': 2}
{1: 'a', True: 'b', 1.0: 'c'}
true
True
none
None
false
a + b
a - b
a * b
a / b
a // b
a % b
a ** b
b ** -1
2 ** 3 ** 2
-2 ** 2
neg // 2
neg % 3
5 % -3
-5 // -3
5.5 // 2
-5.5 // 2
5.5 % -2
-5.5 % 2
f * 2
f ** 0.5
7 / 2
6 / 2
1 / 0
1 // 0
1 % 0
1.0 / 0
True + True
True / 2
-True
-f
-s
'ab' + 'cd'
'ab' * 3
3 * 'ab'
'ab' * -1
[1] * 3
[1] + [2]
(1,) + (2,)
[1] + (2,)
'a' + 1
1 + 'a'
'a' - 'b'
'%s-%d' % ('x', 5)
'%5.2f|%-5d|%05d|%+d|% d' % (3.14159, 42, 42, 42, 42)
'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)
'%e %E %g %G' % (12345.678, 0.00012, 1e20, 1e-10)
'%(a)s and %(b)r' % {'a': 1, 'b': 'x'}
'%s' % 5
'%s' % [1, 2]
'%r' % ('it',)
'%%'
'%% %s' % 1
'%10s|%-10s|%.2s' % ('ab', 'cd', 'efgh')
'%s %s' % (1,)
'%s' % (1, 2)
'%d' % 'x'
'%d' % 3.99
'%y' % 1
1 == 1.0
1 == True
'1' == 1
[1, 2] == [1, 2]
[1, 2] == (1, 2)
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 == 1
1 < 2 == true
'a' < 'b'
'B' < 'a'
[1, 2] < [1, 3]
[1] < [1, 0]
(1, 'a') < (1, 'b')
1 < 'a'
none < 1
none == none
1 != 2
1 <= 1
2 >= 3
1 in [1, 2]
1 in (3, 4)
'x' in d
'items' in d
'q' in d
'lo' in s
'' in s
1 in s
1 not in [2]
'x' not in d
not 1 in [1]
1 in 5
1 in none
1 in undefined_thing
[1] in d
1 and 2
0 and 2
0 or 2
'' or 'x'
none or false
not true
not not 1
not ''
1 or 2 and 0
not 1 == 2
'a' if true else 'b'
'a' if false else 'b'
'a' if false
('a' if false) is defined
1 if 0 else 2 if 0 else 3
'a' ~ 1 ~ none ~ 2.0 ~ [1]
1 ~ 2 + 3
1 + 2 ~ 3
'a' ~ undefined_thing ~ 'b'
a ~ '-' ~ b * 2
s.upper()
s.lower()
s.title()
'hello wORLD it\'s'.title()
s.capitalize()
s.swapcase is defined
s.strip('Hd')
pad.strip()
pad.lstrip()
pad.rstrip() ~ '|'
'xxaxx'.strip('x')
'xyaxy'.lstrip('yx')
s.split()
s.split('o')
s.split('o', 1)
'a,b,,c'.split(',')
' a  b c '.split()
' a  b c '.split(None, 1)
' a  b c '.rsplit(None, 1)
'a,b,c'.rsplit(',', 1)
'abc'.split('')
''.split()
''.split(',')
lines.splitlines()
'a\r\nb\rc\x0bd'.splitlines()
s.startswith('Hello')
s.startswith(('x', 'He'))
s.endswith('ld')
s.endswith('x')
s.startswith('World', 6)
s.replace('o', '0')
s.replace('o', '0', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
s.index('W')
s.index('zz')
s.count('o')
'aaaa'.count('aa')
'abc'.count('')
'-'.join(['a', 'b'])
'-'.join([1])
'-'.join('abc')
'12'.isdigit()
'1a'.isdigit()
''.isdigit()
'abc'.isalpha()
'a1'.isalnum()
' '.isspace()
'abc'.islower()
'ABC1'.isupper()
'7'.zfill(3)
'-7'.zfill(4)
'ab'.center(7, '*')
'ab'.ljust(4) ~ '|'
'ab'.rjust(4)
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('x')
'abc'.rpartition('x')
'prefix-x'.removeprefix('prefix-')
'x.py'.removesuffix('.py')
uni.upper()
uni.lower()
uni.title()
uni.capitalize()
uni | length
uni[1]
uni[-1]
uni[2:8]
uni[::-1]
uni[::3]
uni.find('w')
uni | reverse
uni.split()
[uni]
'ÀÉ'.lower()
'straße'.upper()
'٣'.isdigit()
'²'.isdigit()
'\u3000x\u3000'.strip()
['\x00\x7f\x80\u200b\ue000\U0001F642\u0301']
[quo]
["it's"]
['"']
['\'"']
s[0]
s[-1]
s[100]
s[1:3]
s[:5]
s[-5:]
s[::-1]
s[::2]
s[5:1]
s[5:1:-1]
s[10:-20:-3]
s['a':]
l[0]
l[-1]
l[10]
l[1:]
l[::-1]
l[:-1]
l[true]
l['x']
l[1.0]
l[none:none:none]
l[::0]
(1, 2, 3)[1:]
d.x
d['x']
d.items
d['items']
d.items()
d.missing
d['missing']
d.missing.more
d.zz.deep[1]
d.zz['deep'][0]
d.get('x')
d.get('q')
d.get('q', 'dflt')
d.keys()
d.values()
d.keys() | list
d.items() | list
d.update({'q': 1})
d.pop('x')
d.pop
l.append(1)
l.append
l.index(2)
l.index(9)
l.count(1)
l.copy()
d.copy()
(1, 1).count(1)
s.foo
s.foo.bar
none.foo
none.foo.bar
a.foo
undefined_thing
undefined_thing.x
undefined_thing['x']
undefined_thing()
undefined_thing + 1
-undefined_thing
undefined_thing == other_undefined
undefined_thing != 1
undefined_thing == none
undefined_thing < 1
undefined_thing | length
undefined_thing | list
undefined_thing | default('d')
undefined_thing | d
d.q | default('d')
none | default('d')
none | default('d', true)
'' | default('d', boolean=true)
[undefined_thing]
undefined_thing in [1]
not undefined_thing
undefined_thing or 'x'
undefined_thing | upper
undefined_thing | trim
undefined_thing | join(',')
undefined_thing | first
undefined_thing | items | list
undefined_thing | int
undefined_thing | string
undefined_thing | tojson
undefined_thing | map('upper') | list
undefined_thing | sort
nested
nested | tojson
d
d | tojson
d | tojson(indent=2)
nested | tojson(indent=4)
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}] | tojson(indent=2)
uni | tojson
uni | tojson(ensure_ascii=true)
quo | tojson
html | tojson
'\x00\x1f\x7f\u2028' | tojson
'\x7f' | tojson(true)
1.0 | tojson
1e20 | tojson
1e-7 | tojson
none | tojson
true | tojson
(1, 2) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
{'b': 1, 'a': 2} | tojson(sort_keys=true)
{'b': 1, 2: 2} | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
d | tojson(separators=(',', ':'), indent=1)
d | tojson(indent='--')
d | tojson(indent=0)
d | tojson(indent=-1)
d | tojson(indent=none)
d | tojson(2)
d | tojson(foo=1)
d.items() | tojson
range(3) | tojson
tool | tojson
tool | tojson(indent=4)
1e999
-1e999
1e999 | tojson
(1e999 - 1e999) | tojson
1e999 - 1e999
s | length
l | length
d | length
a | length
none | length
s | count
s | upper
s | lower
s | capitalize
'fOO bAR' | capitalize
'foo-bar baz (qux) [x] {y} <z>' | title
"it's o'neil" | title
pad | trim
'xxaxx' | trim('x')
5 | trim
none | upper
s | replace('o', '0')
s | replace('o', '0', 1)
s | replace('', '-')
5 | replace(5, 6)
s | replace('o', none)
s | replace('o')
l | join
l | join(', ')
l | join(0)
s | join('-')
d | join(',')
a | join
msgs | join(',', attribute='role')
msgs | join(',', 'role')
nested | join('|')
l | first
l | last
el | first
el | last
s | first
s | last
d | first
d | last
el | first is defined
a | first
l | sort
words | sort
words | sort(case_sensitive=true)
words | sort(reverse=true)
words | sort(true, true)
[1, 'a'] | sort
msgs | sort(attribute='role') | map(attribute='role') | list
msgs | sort(attribute='role,content', reverse=true) | map(attribute='content') | list
msgs | sort(attribute='n')
[[2, 1], [1, 2]] | sort
[(1, 'b'), (1, 'a')] | sort(attribute=1)
'hello' | sort
d | sort
words | unique | list
words | unique(true) | list
[1, 1.0, true, 2] | unique | list
msgs | unique(attribute='role') | map(attribute='role') | list
[[1], [1]] | unique | list
l | max
l | min
el | max
words | max
words | min
words | min(true)
msgs | max(attribute='role')
[1, 'a'] | max
l | sum
[1, 2.5] | sum
[0.1, 0.2] | sum
l | sum(start=10)
msgs | sum(attribute='n')
[{'v': 1}, {'v': 2}] | sum(attribute='v')
['a'] | sum
['a'] | sum(start='')
[[1], [2]] | sum(start=[])
l | reverse | list
s | reverse
d | reverse | list
a | reverse
l | list
s | list
d | list
5 | list
5 | string
5.0 | string ~ '!'
none | string
[1] | string
'42' | int
' 42 ' | int
'4_2' | int
'42.9' | int
'x' | int
'x' | int(7)
'x' | int(default=none)
'0x1F' | int(base=16)
'0x1F' | int(0, 0)
'1f' | int(0, 16)
'z' | int(0, 36)
'' | int
'-7' | int
3.9 | int
-3.9 | int
true | int
none | int
[] | int
1e999 | int
(1e999 - 1e999) | int
'inf' | int
'3.5' | float
'x' | float
'x' | float(1.5)
'1e3' | float
'  2.5  ' | float
'nan' | float
'-inf' | float
'+.5' | float
'5.' | float
'1_0.5' | float
'0x10' | float
none | float
7 | float
-5 | abs
-5.5 | abs
true | abs
'x' | abs
2.5 | round
3.5 | round
-2.5 | round
2.675 | round(2)
1234.567 | round(-2)
1234 | round(-2)
1250 | round(-2)
1350 | round(-2)
5 | round
2.1 | round(method='ceil')
2.9 | round(0, 'floor')
2.11 | round(1, 'ceil')
2.15 | round(1)
5 | round(method='ceil')
2.5 | round(method='x')
'x' | round
1e300 | round(2)
2.5 | round | int
l | map('string') | list
words | map('upper') | join(',')
words | map('replace', 'a', 'A') | list
msgs | map(attribute='role') | join(',')
msgs | map(attribute='n', default='?') | join(',')
msgs | map(attribute='n') | join(',')
[[1, 2], [3]] | map('first') | list
[[1, 2], [3]] | map(attribute=0) | list
[{'a': {'b': 5}}, {'a': {}}] | map(attribute='a.b') | list
[{'a': [7]}] | map(attribute='a.0') | list
words | map('nosuchfilter') | list
words | map | list
l | map('tojson') | list
l | select('odd') | list
l | select | list
[0, 1, '', 'a', none] | select | list
[0, 1, '', 'a', none] | reject | list
l | reject('odd') | list
l | select('>', 1) | list
l | select('in', [1, 2]) | list
l | select('nosuchtest') | list
msgs | selectattr('n') | list | length
msgs | selectattr('role', 'equalto', 'user') | list | length
msgs | selectattr('role', '==', 'user') | map(attribute='content') | list
msgs | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list
msgs | selectattr('n', 'defined') | list | length
msgs | rejectattr('n', 'undefined') | map(attribute='n') | list
msgs | selectattr('content', 'none') | list
msgs | selectattr | list
(msgs | selectattr('role', 'equalto', 'nobody')) and 'true'
msgs | selectattr('role', 'equalto', 'user') | first
msgs | selectattr('role', 'equalto', 'user') | last
msgs | selectattr('role', 'equalto', 'user') | length
(msgs | selectattr('role', 'equalto', 'user'))[0]
d | items | list
el | items | list
d | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort(true)
{'b': 1, 'A': 2, 'c': 0} | dictsort(by='value')
{'b': 1, 'A': 2, 'c': 0} | dictsort(false, 'key', true)
{'b': 1, 2: 2} | dictsort
l | dictsort
d | dictsort(by='x')
lines | indent
lines | indent(2)
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent('> ', first=true)
'' | indent
'\n' | indent
5 | indent
html | e
html | escape
html | e | e
html | safe
html | safe | e
html | forceescape
(html | e) + '<'
'<' + (html | safe)
(html | e) ~ '<'
[html | e]
('<' | e) * 2
('%s' | safe) % '<'
('<' | e).upper()
('a<' | e) | upper
('<' | e) == '&lt;'
('<' | e) is string
5 | e
none | e
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3] | batch(2, 'x') | list
'one two  three-four' | wordcount
'' | wordcount
'%s %s' | format('a', 1)
'%(x)s' | format(x=5)
'%s' | format
'%.2f' | format(3.14159)
'a b c d e f g' | truncate(5)
'a b c d e f g' | truncate(5, true)
'a b c d e f g' | truncate(5, leeway=0)
'a b c d e f g' | truncate(5, false, '..', 0)
'ab' | center(6) ~ '|'
d | attr('x')
s | attr('upper')
msgs | groupby('role')
words | groupby(0) | list
1 is odd
2 is odd
2 is even
-1 is odd
2.0 is even
'a' is odd
6 is divisibleby 3
6 is divisibleby(4)
6 is divisibleby 0
a is defined
undefined_thing is defined
undefined_thing is undefined
undefined_thing is not defined
d.q is defined
none is none
none is not none
0 is none
true is boolean
1 is boolean
true is true
1 is true
false is false
0 is false
1 is integer
true is integer
1.0 is integer
1.0 is float
1 is float
1 is number
true is number
1.5 is number
'1' is number
'a' is string
1 is string
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
a is sequence
undefined_thing is sequence
l is iterable
s is iterable
a is iterable
none is iterable
undefined_thing is iterable
range(3) is iterable
range(3) is sequence
d.keys() is sequence
(l | map('string')) is sequence
(l | map('string')) is iterable
range is callable
s is callable
s.upper is callable
undefined_thing is callable
'abc' is lower
'ABC' is upper
'aBc' is lower
'123' is lower
1 is eq 1
1 is equalto 1.0
1 is ne 2
1 is lt 2
2 is gt 1
1 is le 1
1 is ge 2
1 is lessthan 2
1 is greaterthan 2
1 is in [1, 2]
'a' is in 'abc'
1 is not in [1, 2]
1 is sameas 1
none is sameas none
1 is sameas true
'upper' is filter
'nosuch' is filter
'odd' is test
'x' is escaped
1 is nosuchtest
1 | nosuchfilter
1 is defined and 2 is defined
a is number and a is not string
not a is string
1 is odd or 2 is odd
a is defined == true
1 + 1 is even
(1 + 1) is even
range(5)
range(5) | list
range(1, 5) | list
range(5, 1, -2) | list
range(0) | list
range(5)[1]
range(5)[-1]
range(10)[2:8:2]
range(3) | length
range(1, 2, 0)
range('a')
range(1000000000000)
3 in range(5)
3.0 in range(5)
dict(a=1, b=2)
dict([('a', 1)])
dict({'a': 1}, b=2)
dict()
dict([1])
namespace(a=1).a
namespace({'x': 2}, y=3).y
namespace().q
namespace()['q']
joiner()
cycler()
loop
loop is defined
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
strftime_now('%H:%M:%S %A %B %j')
strftime_now('')
raise_exception('no way: ' ~ a)
raise_exception()
s.upper
'a{}b{}'.format(1, s)
'{0}{1}{0}'.format(1, [2])
'{a} {b!r} {{}}'.format(a=1, b='x')
'{0.x} {0[y]} {1[0]}'.format(d, l)
'{:>5}|{:<5}|{:^5}|{:*^6}'.format('a', 'b', 'c', 'd')
'{:5d}|{:05d}|{:+d}|{:x}|{:#X}|{:,}'.format(42, 42, 42, 255, 255, 1234567)
'{:.2f}|{:8.3f}|{:e}|{:.1%}|{:g}'.format(3.14159, 2.5, 12345.6, 0.25, 1e10)
'{:.3}|{:5}|{}'.format('abcdef', 1.5, none)
'{}'.format()
'{x}'.format()
'{'.format()
'}'.format()
'{:d}'.format('x')
'{0.__class__}'.format(s)
(s.upper)()
s['upper']()
d['get']('x')
s.__class__
s.__class__.__mro__
d.__class__ is defined
s.split(sep='o')
s.split(maxsplit=1)
s.replace(*['o', '0'])
dict(**{'a': 1})
dict(*[[('a', 1)]])
s.upper(1)
s.nosuch()
5()
'x'()
none()
[1, 2, 3] | sum == 6
l | sort | first
-l | first
-5 | abs
2 ** -1
10 ** 18
9223372036854775807
-9223372036854775807 - 1
1 if
1 +
(1
[1, 2
{'a'
{{1}}
1 2
'abc
a.1
a.
l.0
l.-1
nested.1.1.0
nested[1][1][0]
d.zz.deep.1
d.x.y
f(1)
@
a $ b
1 = 1
a if b else
not
is defined
a is
a |
a | 5
a is not
a not b
a in
a is odd is even
d[1, 2]
d[]
s[1:2:3:4]
l[1:2, 3]
True.x
1.5.x
1.x
msgs[0].role
msgs[-1]['content']
msgs[0]['role'] == 'system' and msgs[1].role
msgs[1:] | map(attribute='role') | list
msgs[::2] | length
msgs[0].content.split(' ')[0]
(msgs | map(attribute='role') | list)[1]
msgs | map(attribute='content') | map('length') | list
msgs | map(attribute='role') | map('upper') | join
(a + b) | string | length
a | string + 'x'
'a' | upper ~ 'b'
'a' ~ 'b' | upper
a + b | string
{'a': a}['a']
[a, b][0]
(a, b)[1]
{'x': {'y': 1}}.x.y
{'role': 'user', 'content': s}
'abc'[1]
'abc'.upper()[0]
"a" in "abc" and "b" in "abc"
'a' not in 'abc'
not 'a' in 'abc'
1 < 2 and 2 < 3
1 < 2 < 3 < 4
a == 3 == 3.0
[1, [2, [3]]] == [1, [2, [3.0]]]
0.1
1/3
2/3
100.0
1e100
123456.789
1e22
1e21
5e-324
1.7976931348623157e308
-0.0
0.0 == -0.0
1e5
1.0e+5
1E5
12345678.9
0.00001
"""

STATEMENTS = [
    "{% if a %}A{% endif %}",
    "{% if z %}A{% else %}B{% endif %}",
    "{% if z %}A{% elif a == 3 %}C{% else %}B{% endif %}",
    "{% if z %}A{% elif z %}C{% elif a %}D{% endif %}",
    "{% if a, b %}tuple{% endif %}",
    "{% if %}x{% endif %}",
    "{% if a %}",
    "{% endif %}",
    "{% if a %}{% endfor %}",
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }};{% endfor %}",
    "{% for x in l %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ x if loop.changed(x) }}{% endfor %}",
    "{% for x in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in el %}{{ x }}{% else %}empty{% endfor %}",
    "{% for x in l %}{{ x }}{% else %}empty{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }};{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.length }}{{ x }};{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l if loop is defined %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in undefined_thing %}{{ x }}{% else %}u{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }}{{ loop.last }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }};{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}{{ b }};{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for c in 'héß' %}{{ c }}.{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for i in range(2) %}{% set o = loop %}{% for j in range(2) %}{{ o.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% break %}{{ x }}{% endfor %}done",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ x }}{% if loop.index == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}",
    "{% for x in l %}{% break %}{% else %}E{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}E{% endfor %}",
    "{% for i in l %}{% for j in l %}{% break %}{% endfor %}{{ i }}{% endfor %}",
    "{% break %}",
    "{% continue %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in el %}{% else %}{% break %}{% endfor %}",
    "{% for x in l %}{% filter upper %}a{% break %}{% endfilter %}{% endfor %}z",
    "{% for x in l %}{% set y %}q{% continue %}{% endset %}{{ y }}{% endfor %}z",
    "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% for x in [[1, [2, [3]]]] recursive %}{{ x if x is not sequence else '[' ~ loop(x) ~ ']' }}{% endfor %}",
    "{% for x in [{'n': 'a', 'c': [{'n': 'b'}]}] recursive %}{{ x.n }}{{ loop.depth }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}",
    "{% for x in l %}{{ loop(x) }}{% endfor %}",
    "{% for loop in l %}{% endfor %}",
    "{% for x in l | map('string') %}{{ loop.length }}{{ loop.index }}{{ x }} {% endfor %}",
    "{% for x in l | map('string') %}{{ loop.nextitem }}{{ x }} {% endfor %}",
    "{% for x in msgs | selectattr('role', 'equalto', 'user') %}{{ x.content }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% set g = l | select('odd') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}",
    "{% for x in l | reverse %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for x in [3, 2, 1] | sort %}{{ x }}{{ not loop.last and ',' or '.' }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in l recursive if x %}{% endfor %}",
    "{% for x in a if a else b %}{% endfor %}",
    "{% for x in (l if a else el) %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ x }}{% endfor %}{{ x }}{{ loop }}",
    "{% for x in l %}{{ loop | length }}{{ loop is iterable }}{{ loop is sequence }}{% endfor %}",
    "{% for x in l %}{{ loop['index'] }}{% endfor %}",
    "{% for x in l %}{{ loop.nosuch }}{{ loop.nosuch is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% set x = 5 %}{{ x }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}",
    "{% set (x, y) = [1, 2] %}{{ x }}{{ y }}",
    "{% set x, y = 1 %}",
    "{% set x, y = [1, 2, 3] %}",
    "{% set a = 5 %}{{ a }}",
    "{% set a = a + 1 %}{{ a }}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in l %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y }},{% endfor %}",
    "{% for i in l %}{% set a = i %}{% endfor %}{{ a }}",
    "{% set x %}body {{ a }}{% endset %}{{ x }}",
    "{% set x | upper %}body{% endset %}{{ x }}",
    "{% set x | upper | replace('B', 'c') %}body{% endset %}{{ x }}",
    "{% set x %}{% set y = 3 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    "{% set x %}{% endset %}{{ x is string }}{{ x | length }}",
    "{% set true = 1 %}",
    "{% set 1 = 1 %}",
    "{% set x.y = 1 %}",
    "{% set x = 1 %}{% set x.y = 1 %}",
    "{% set ns = namespace(c=0) %}{% for x in l %}{% set ns.c = ns.c + x %}{% endfor %}{{ ns.c }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace(x=1) %}{% set ns.y %}text{% endset %}{{ ns.y }}{{ ns }}",
    "{% set ns = namespace(x=[]) %}{% set ns.x = ns.x + [1] %}{% set ns.x = ns.x + [2] %}{{ ns.x }}",
    "{% set d.x = 1 %}",
    "{% set ns = namespace(x=1) %}{{ ns.q is defined }}{{ ns['x'] }}{{ ns is mapping }}{{ ns is iterable }}",
    "{% set ns = namespace(f=false) %}{% for x in l if not ns.f %}{{ x }}{% set ns.f = true %}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for x in l if not ns.f %}{{ x }}{{ loop.last }}{% set ns.f = true %}{% endfor %}",
    "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(1) }}{{ m() }}{{ m(x=2) }}",
    "{% macro m(x, y=2, z=none) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(z=1, x=0) }}",
    "{% macro m(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a=a) %}{{ a }}|{% endmacro %}{{ m() }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(q=2) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, q=3) }}",
    "{% macro m(x) %}{{ x }}{{ varargs }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m() %}{{ a }}{% endmacro %}{% set a = 9 %}{{ m() }}",
    "{% macro m() %}{% set a = 9 %}{% endmacro %}{{ m() }}{{ a }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}x{% endmacro %}{{ m() | upper }}{{ m() ~ 'y' }}{{ m().upper() }}{{ m() is string }}{{ m is callable }}",
    "{% macro m() %}\n  x\n{% endmacro %}[{{ m() }}]",
    "{% macro m(x, y=1, z) %}{% endmacro %}",
    "{% macro m(x y) %}{% endmacro %}",
    "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}",
    "{% macro m(x) %}{{ loop is defined }}{% endmacro %}{% for i in l %}{{ m(i) }}{% endfor %}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}hi {{ a }}{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(x, y) m() %}{{ x }}{{ y }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(f) %}{{ f(2) }}{% endmacro %}{% macro g(x) %}<{{ x }}>{% endmacro %}{{ m(g) }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro m() %}{% endmacro %}{{ m.name }}",
    "{% macro render(p) %}{% if p is mapping %}{% for k, v in p | items %}{{ k }}:{{ render(v) }};{% endfor %}{% else %}{{ p }}{% endif %}{% endmacro %}{{ render(tool) }}",
    "{% filter upper %}abc {{ a }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q }}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% with a = 1, q = a %}{{ q }}{% endwith %}",
    "{% generation %}gen {{ a }}{% endgeneration %}",
    "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}",
    "{% for m in msgs %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.role }}{% endif %}{% endfor %}",
    "{% print 1 %}{% print a, b %}",
    "{% raw %}{{ a }}{% if %}{% endraw %}",
    "{%- raw -%}  {{ a }}  {%- endraw -%}  x",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb",
    "{% raw %}{{ a }}",
    "{% raw %}{% raw %}{% endraw %}",
    "{# comment #}x",
    "a {# comment\n #} b",
    "a {#- c -#} b",
    "{# unclosed",
    "{{ a",
    "{% if a",
    "{{ a }",
    "{{ }}",
    "{% %}",
    "{% nosuchtag %}",
    "{% do l.append(1) %}",
    "{% extends 'x' %}",
    "{% include 'x' %}",
    "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': 1}.a }}}",
    "{{ '}}' }}{{ \"%}\" }}",
    "{% if '%}' == '%}' %}y{% endif %}",
    "{% set x = {'a': [1, {'b': 2}]} %}{{ x.a[1].b }}",
    "{{ [\n1,\n2,\n] }}",
    "{{ foo(\n a=1 ) }}",
    "{% set content = msgs[1].content | trim %}{{ '<|im_start|>' + msgs[1].role + '\n' + content + '<|im_end|>' }}",
    "{{ raise_exception('boom') }}",
    "{% if msgs[0].role != 'user' %}{{ raise_exception('roles must alternate: ' + msgs[0]['role']) }}{% endif %}",
    "{% set tools = none %}{{ tools is none }}{% if not tools %}n{% endif %}",
    "{% if tools is defined and tools %}t{% else %}n{% endif %}",
    "{% if not add is defined %}{% set add = false %}{% endif %}{{ add }}",
    "{%- for m in msgs %}\n    {%- if m.role == 'user' %}\n{{ m.content }}\n    {%- endif %}\n{%- endfor %}\nend",
    "{% for m in msgs -%}\n  {{ m.role }}:\n{% endfor %}",
    "{% for m in msgs %}\n{{ m.role }}\n{% endfor %}\n",
    "{% if true %}{{ 1 | nosuch }}{% endif %}",
    "{{ 'a' if x is defined else 'b' }}",
    "{{ x if x is defined }}",
    "line\n{{ 1 / 0 }}",
]

WHITESPACE = [
    "a\n",
    "a\n\n",
    "\n",
    "\n\n",
    "",
    "a\r\nb\rc\n",
    "{{ a }}\n",
    "{{ a }}\n\n",
    "{% if a %}\n",
    "{% if a %}\nx\n{% endif %}\n",
    "{% if a %}\n\nx\n\n{% endif %}\n\ny",
    "  {% if a %}  x  {% endif %}  ",
    "  {%- if a %}  x  {%- endif %}  ",
    "  {% if a -%}  x  {% endif -%}  y",
    "  {%- if a -%}  x  {%- endif -%}  y",
    "  {%+ if a %}  x  {%+ endif %}  y",
    "{% if a +%}\nx\n{% endif +%}\ny",
    "x {% if a %}y{% endif %}",
    "x\n  {% if a %}y{% endif %}\n  z",
    "x\n \t {% if a %}\n y \n \t{% endif %}\n z",
    "x\n  {{ a }}\n  y",
    "x\n  {{- a }}\n  y",
    "x\n  {{ a -}}\n  y",
    "x\n  {{- a -}}\n  y",
    "x {{+ a }} y",
    "{{+a}}",
    "{{-a}}",
    "{{- -a -}}",
    "x\n  {# c #}\n  y",
    "x\n  {#- c #}\n  y",
    "x\n  {# c -#}\n  y",
    "x\n  {#+ c #}\n  y",
    "x\n  {# c +#}\n  y",
    "x {# c #} y",
    "{#-#}x",
    "{#--#}x",
    "{# a #}{# b #}\n\nx",
    "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}{{ y }}",
    "{% set x = 1 -%}\n\n{% set y = 2 %}\n\n{{ x }}{{ y }}",
    "{% for i in l %}\n  {{ i }}\n{% endfor %}\nend",
    "{% for i in l %}\n  {{- i }}\n{%- endfor %}\nend",
    "{%- for i in l -%}\n  {{ i }}\n{%- endfor -%}\nend",
    "{% for i in l %} {% if i > 1 %} {{ i }} {% endif %} {% endfor %}",
    "{% for i in l %}\n  {% if i > 1 %}\n    {{ i }}\n  {% endif %}\n{% endfor %}\n",
    "  {% for i in l %}{{ i }}  {% endfor %}\n  {% if a %}{% endif %}\n",
    "\t{% if a %}\tx\t{% endif %}",
    "\u00a0{% if a %}x{% endif %}\u00a0\n\u00a0{%- if a %}y{% endif -%}\u3000z",
    "a{% if a %}\r\nb\r\n{% endif %}\r\nc\r\n",
    "{{ 'x\r\ny' }}",
    "{% raw %}\nx\n{% endraw %}\ny",
    "{% raw -%}\nx\n{%- endraw %}\ny",
    "  {%- raw %} x {% endraw -%}  y",
    "{%+ raw %}x{%+ endraw +%}\ny",
    "{%raw%}x{%endraw%}",
    "{%  raw  %}x{%  endraw  %}",
    "{%if a%}x{%endif%}",
    "{{a}}",
    "{{-a-}}",
    "{{'x'}}{{'y'}}",
    "{% if a %}{% endif %}\n{% if a %}{% endif %}\n",
    "x{% if a %}\n{% endif %}\n{{ a }}\n{% if a %}\n{% endif %}",
    "{{ a }}\n  {% if a %}x{% endif %}",
    "{{ a -}}\n  {% if a %}x{% endif %}",
    "{{ a }}  {% if a %}x{% endif %}",
    "{# c #}  {% if a %}x{% endif %}",
    "{# c #}\n  {% if a %}x{% endif %}",
    "{% set x = 1 %}  {% if a %}x{% endif %}",
    "{% set x = 1 -%}\n  {% if a %}x{% endif %}",
    "{% set x = 1 %}\n  {{ x }}",
    "  x  {%- set y = 1 -%}  z  ",
    "<s>\n{%- for m in msgs %}\n\n    {{- m.role }}\n\n{%- endfor %}\n</s>\n",
    "{ {a} } {{ '{' }} { % if %}",
    "{",
    "}}",
    "%}",
    "#}",
    "{%- -%}",
    "{%--%}",
    "{{--}}",
    "{{ 1 -}}{{- 2 }}",
    "a\x0b\x0c{%- if a %}b{% endif %}",
    "{% macro m() -%}\n  x\n{%- endmacro %}\n[{{ m() }}]",
    "{% set x -%}\n  y\n{%- endset %}\n[{{ x }}]",
    "{% filter trim %}\n  y\n{% endfilter %}\n|",
    "{% generation %}\n  y\n{% endgeneration %}\n|",
    "{%- generation -%}\n  y\n{%- endgeneration -%}\n|",
    "{% call m() %}x{% endcall %}",
    "{% if a: %}x{% endif %}",
    "{% for x in l: %}{{ x }}{% else: %}y{% endfor %}",
]

SNIPPETS = (
    ["{{ " + line + " }}" for line in EXPRESSIONS.strip("\n").split("\n")] + STATEMENTS + WHITESPACE
)
