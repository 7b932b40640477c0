# SPDX-License-Identifier: BSD-2-Clause
"""blocks.py - the commands that a document tells people to type.

Knows Markdown and a little YAML, and nothing of running. A block of code is shell if it is fenced as such,
or begins with a command; README.md of this folder has the comments that may stand before one.
"""
import re
import shutil
from pathlib import Path

COMMANDS = re.compile(r"""(\./[\w.-]+|(tests|bench|build|scripts|examples)/\S+|[A-Z_]+=\S+\ \S.*|[a-z]+=\$\(.*
	|stagd?|sudo|apt(-get)?|git|meson|ninja|cmake|ctest|make|pkg-config|cc|gcc|c\+\+|curl|jq|ssh|scp|head|kill|ln|chown|mkdir
	|install|systemctl|systemd-\S+|journalctl|tshark|ib_\S+|ibv_\S+|rping|fio|iscsiadm|iscsi-\S+|qemu-\S+|etcd(ctl)?|docker|podman
	|promtool|printf|socat|openssl|taskset|chrt|for\ \w+\ in|while\ [^(\s]\S*|export|cd|echo|cp|tar|cat|man|ldconfig|getcap|setcap|ulimit|ip)(\s|$)""", re.X)
NOT_SHELL = {'c', 'cpp', 'ini', 'json', 'text', 'python', 'html', 'cmake', 'meson', 'promql', 'http'}
KINDS = ('not run', 'needs', 'run first', 'run instead', 'shows')


class Fault(Exception):
	"""A comment or a fence that makes no sense, with its line."""


class Block:
	"""Lines to type, where they stand, and what the comments before them say."""

	def __init__(self, line, text, marks):
		self.line = line
		self.text = text
		self.reason = marks.get('not run')
		missing = marks.get('needs')
		if missing and not shutil.which(missing):
			self.reason = f'{missing} is not installed'
		self.first = marks.get('run first')
		self.instead = marks.get('run instead')
		self.shows = marks.get('shows')

	def texts(self):
		"""What is pasted, one after the other."""
		return [text for text in (self.first, self.instead or self.text) if text]


def is_shell(language, text):
	if language:
		if language in ('sh', 'bash', 'shell', 'console', 'yaml', 'dockerfile'):
			return True
		if language not in NOT_SHELL:
			raise Fault(f'a fence of unknown language {language}')
		return False
	lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith('#')]
	return bool(lines) and COMMANDS.match(lines[0]) is not None


def yaml_commands(text):
	"""What a CI would type: of `run: |`, `run: COMMAND` and the lists of `script:`."""
	out, until, listed = [], None, None
	for line in text.splitlines():
		indent = len(line) - len(line.lstrip())
		if until is not None:
			if line.strip() and indent <= until:
				until = None
			else:
				out.append(line.strip())
				continue
		if listed is not None:
			if re.match(r'\s*- ', line) and indent >= listed:
				out.append(re.sub(r'^\s*- ', '', line))
				continue
			if line.strip():
				listed = None
		if re.match(r'\s*(- )?run: *\|', line):
			until = indent
		elif found := re.match(r'\s*(- )?run: *(\S.*)', line):
			out.append(found.group(2))
		elif re.match(r'\s*(before_script|script):\s*$', line):
			listed = indent
	return '\n'.join(out)


def docker_commands(text):
	joined = text.replace('\\\n', ' ')
	return '\n'.join(re.sub(r'^RUN\s+', '', line) for line in joined.splitlines() if line.startswith('RUN '))


def commands_of(language, text):
	return {'yaml': yaml_commands, 'dockerfile': docker_commands}.get(language, str)(text)


def mark_of(comment, number):
	kind, colon, rest = comment.partition(':')
	kind, rest = kind.strip(), rest.strip()
	if kind not in KINDS:
		return None
	if not colon or not rest:
		raise Fault(f'{number}: "{kind}" says not what')
	return kind, rest


def raw_blocks(lines):
	"""(line, language, text) of blocks of code, (line, 'section', name) and (line, 'comment', text)."""
	i = 0
	while i < len(lines):
		line = lines[i]
		start = i
		if line.startswith('```'):
			language = line[3:].strip() or 'text'
			i += 1
			while i < len(lines) and not lines[i].startswith('```'):
				i += 1
			yield start + 1, language, '\n'.join(lines[start + 1:i])
		elif line.startswith('<!--'):
			while i < len(lines) and '-->' not in lines[i]:
				i += 1
			yield start + 1, 'comment', '\n'.join(lines[start:i + 1]).split('<!--', 1)[1].split('-->', 1)[0].strip()
		elif line.startswith('# '):
			yield start + 1, 'section', line[2:].strip()
		elif line.startswith('    ') and (i == 0 or not lines[i - 1].strip() or lines[i - 1].startswith('<!--')):
			while i < len(lines) and (lines[i].startswith('    ') or (not lines[i].strip() and
					i + 1 < len(lines) and lines[i + 1].startswith('    '))):
				i += 1
			yield start + 1, '', '\n'.join(text[4:] for text in lines[start:i])
			continue
		i += 1


def blocks(path):
	"""The blocks of a document that are shell, in order. Of a man page those of SYNOPSIS are forms, not commands."""
	found, marks, section = [], {}, ''
	for number, kind, text in raw_blocks(Path(path).read_text(encoding='utf-8').splitlines()):
		if kind == 'section':
			section = text
		elif kind == 'comment':
			mark = mark_of(text, number)
			if mark:
				marks[mark[0]] = mark[1]
				marks['line'] = number
		elif section != 'SYNOPSIS' and is_shell(kind, text) and (text := commands_of(kind, text)):
			found.append(Block(number, text, marks))
			marks = {}
	if marks:
		raise Fault(f'{marks["line"]}: nothing follows that could be typed')
	return found
