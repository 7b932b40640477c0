#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""typist.py BLOCKS - pastes the blocks of a document, one after the other, into an interactive shell on a terminal.

BLOCKS is a file of JSON: [{"line", "texts", "shows"}]. Each text goes to the terminal at once, as a user pastes it: a command that
reads its standard input gets the lines after it, and no line waits for what the one before has started. What the commands print
goes to a file, as it would be in a pipe. Between two blocks the typist waits as long as a reader would: until commands in the
background listen, or have ended.
"""
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

LIMIT = 90      # seconds for a text
READY = 20      # seconds for a command in the background to be ready
SAID = 25       # lines of the output that are shown after a failure
HERE = Path(os.environ["HOME"]).parent
OUT, NOTES = HERE / 'out', HERE / 'notes'

# A command that fails is noted, with its code, and so is the end of a text; the shell goes on, as it does for a user.
SETUP = f'''PS1= PS2= PROMPT_COMMAND= HISTFILE=
exec >>{OUT} 2>&1
__end() {{ echo "end $1 $(jobs -p | tr '\\n' ' ')" >>{NOTES}; }}
trap 'echo "failed $? $BASH_COMMAND" >>{NOTES}' ERR
'''


class Failure(Exception):
	pass


class Terminal:
	"""An interactive bash on a terminal of its own."""

	def __init__(self):
		OUT.touch()
		NOTES.touch()
		rc = HERE / 'bashrc'
		rc.write_text(SETUP, encoding='utf-8')
		self.pid, self.fd = pty.fork()
		if self.pid == 0:
			os.execvp('bash', ['bash', '--noprofile', '--rcfile', str(rc), '--noediting', '-i'])
		modes = termios.tcgetattr(self.fd)
		modes[3] &= ~termios.ECHO
		termios.tcsetattr(self.fd, termios.TCSANOW, modes)
		os.set_blocking(self.fd, False)
		self.texts = 0
		self.notes_read = 0

	def notes(self):
		"""What the shell has noted since the last call, in whole lines."""
		with open(NOTES, encoding='utf-8', errors='replace') as file:
			file.seek(self.notes_read)
			text = file.read()
		text = text[:text.rfind('\n') + 1]
		self.notes_read += len(text.encode('utf-8', 'replace'))
		return text.splitlines()

	def drain(self, wait):
		readable, _, _ = select.select([self.fd], [], [], wait)
		if readable:
			try:
				os.read(self.fd, 65536)
			except OSError:
				raise Failure('the shell has ended') from None

	def paste(self, text):
		"""Pastes a text. Returns the processes in the background after it."""
		self.texts += 1
		rest = (text.rstrip('\n') + f'\n__end {self.texts}\n').encode()
		until = time.monotonic() + LIMIT
		failed = []
		while time.monotonic() < until:
			if rest:
				try:
					rest = rest[os.write(self.fd, rest[:1024]):]
				except BlockingIOError:
					pass
			self.drain(0 if rest else 0.02)
			for note in self.notes():
				word, _, more = note.partition(' ')
				if word == 'end':
					if failed:
						raise Failure('; '.join(failed))
					return [int(pid) for pid in more.split()[1:]]
				if word == 'failed' and not more.split(' ', 1)[1].startswith('__end'):
					failed.append('exit code ' + more.replace(' ', ': ', 1))
		raise Failure(f'not done after {LIMIT} s; does a command read what follows it?')


# ---- commands in the background -----------------------------------------------------------------

def children():
	"""{process: its children}"""
	found = {}
	for entry in os.listdir('/proc'):
		if entry.isdigit():
			try:
				stat = Path('/proc', entry, 'stat').read_text(encoding='utf-8', errors='replace')
			except OSError:
				continue
			state, parent = stat[stat.rindex(')') + 2:].split()[:2]
			if state not in 'ZX':
				found.setdefault(int(parent), []).append(int(entry))
	return found


def family(pid):
	tree, found = children(), [pid]
	for one in found:
		found += tree.get(one, [])
	return found


def listens(pid):
	"""Does the command, or what it has started, listen? stagd says itself when all that it serves is served."""
	all_of = family(pid)
	for one in all_of:
		try:
			name = os.path.basename(os.readlink(f'/proc/{one}/exe'))
		except OSError:
			continue
		if name == 'stagd':
			return re.search(r'^(serving|console and API) ', OUT.read_text(encoding='utf-8', errors='replace'), re.M) is not None
	sockets = subprocess.run(['ss', '-Hltnp'], stdout=subprocess.PIPE, text=True, check=False).stdout
	return any(f'pid={one},' in sockets for one in all_of)


def is_over(pid):
	return not any(pid in born for born in children().values())


def await_ready(terminal, pids, known):
	until = time.monotonic() + READY
	for pid in pids:
		while pid not in known and not is_over(pid) and not listens(pid):
			if time.monotonic() > until:
				raise Failure(f'a command in the background neither listens nor ends within {READY} s')
			terminal.drain(0.05)
		known.add(pid)


# ---- a document -------------------------------------------------------------------------------

def type_block(terminal, block, known):
	OUT.write_text('', encoding='utf-8')
	for text in block['texts']:
		await_ready(terminal, terminal.paste(text), known)
		terminal.paste('')   # the shell tells of commands in the background that have ended
	ended = re.search(r'^\[\d+\]\S?\s+Exit \d+.*', OUT.read_text(encoding='utf-8', errors='replace'), re.M)
	if ended:
		raise Failure(ended.group())
	if block['shows'] and not re.search(block['shows'], OUT.read_text(encoding='utf-8', errors='replace'), re.M):
		raise Failure(f'no "{block["shows"]}" in its output')


def main():
	blocks = json.loads(Path(sys.argv[1]).read_text(encoding='utf-8'))
	terminal, known = Terminal(), set()
	for block in blocks:
		print(f'types line {block["line"]}', flush=True)
		try:
			type_block(terminal, block, known)
		except Failure as failure:
			print(f'line {block["line"]}: {failure}')
			for line in OUT.read_text(encoding='utf-8', errors='replace').splitlines()[-SAID:]:
				print(line[:300])
			sys.exit(1)
	os.kill(terminal.pid, signal.SIGKILL)


main()
