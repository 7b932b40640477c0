# SPDX-License-Identifier: BSD-2-Clause
"""machine.py - machines to type on: namespaces with stag in /usr/local and an ordinary user with an empty home directory (see session)."""
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOBODY = 65534
NAMESPACES = ['--net', '--mount', '--uts', '--pid', '--fork', '--kill-child', '--mount-proc']


def unshare():
	if os.geteuid() == 0:
		return ['unshare', *NAMESPACES]
	return ['unshare', '--user', '--map-current-user', '--keep-caps', *NAMESPACES]


def possible():
	return subprocess.run([*unshare(), 'true'], stderr=subprocess.DEVNULL, check=False).returncode == 0


def session(home, installed, script, shims=''):
	"""The command that runs a script on a machine of its own."""
	uid = NOBODY if os.geteuid() == 0 else os.geteuid()
	return [*unshare(), str(HERE / 'session'), str(home), str(installed), str(uid), str(script), str(shims)]


def install(build, source, top):
	"""Where what belongs to /usr/local is. What the sessions need comes along: the sources may be for their owner only."""
	for file in (*HERE.glob('*.sh'), HERE / 'typist.py', HERE / 'stand-in', source / 'meson_options.txt'):
		shutil.copy(file, top)
	shutil.copytree(source / 'scripts/up', top / 'tree/scripts/up')
	shutil.copy(source / 'up', top / 'tree')
	options = json.loads(subprocess.run(['meson', 'introspect', '--buildoptions', build], check=True, capture_output=True).stdout)
	prefix = next(o['value'] for o in options if o['name'] == 'prefix')
	# meson records what it has installed: the previous record is kept, and tests do this one at a time.
	note = Path(build) / 'meson-logs/install-log.txt'
	with open(note.with_name('install.lock'), 'w', encoding='utf-8') as lock:
		fcntl.flock(lock, fcntl.LOCK_EX)
		before = note.read_bytes() if note.exists() else b''
		subprocess.run(['meson', 'install', '-C', build, '--no-rebuild', '--destdir', str(top / 'root')], check=True,
			       stdout=subprocess.DEVNULL)
		note.write_bytes(before)
	return top / 'root' / prefix.lstrip('/')
