#!/usr/bin/env bash
# repl_tmux.sh BINARY FOLDER: the REPL in a real terminal (tmux). Types keys as a user does and looks
# at the screen: completion by Tab, history by the arrow keys within and across sessions, a
# multi-line input with its second prompt, Ctrl-C on a line and on a long evaluation, Ctrl-D.
set -u
binary=$1 folder=$2
name="colauto-repl-$$"
tmux() { command tmux -L "$name" "$@"; }
trap 'tmux kill-server 2>/dev/null' EXIT
screen() { tmux capture-pane -p -t "$name" -S -200; }
keys() { tmux send-keys -t "$name" "$@"; }
fail() {
  echo "not seen: $1"
  screen
  exit 1
}
# Waits for a pattern on the screen.
see() {
  for _ in $(seq 150); do
    screen | grep -qE -- "$1" && return 0
    sleep 0.1
  done
  fail "$1"
}
start() {
  keys "XDG_STATE_HOME='$folder' NO_COLOR=1 '$binary' repl small.cad" Enter
  see '^cad> *$'
}

tmux new-session -d -s "$name" -x 100 -y 50 -c "$folder" "env PS1='shell> ' bash --norc --noprofile"
see 'shell>'
start

# Tab: the only command that begins so, then a file, then a name that several share.
keys ':rel' Tab
see '^cad> :reload *$'
keys C-c
see '\^C'
keys ':load sm' Tab Enter
see '^cad> :load small.cad'
see 'small.cad: .* dims'
keys 'log' Tab Tab
see 'log_softmax'
see 'logsumexp'
keys C-c
keys 'LayerN' Tab
see 'LayerNorm'
keys C-c

# A value, then the line again from the history, edited.
keys '40 + 2' Enter
see '^42$'
keys Up
see '^cad> 40 \+ 2'
keys BSpace '3' Enter
see '^43$'

# A block goes on with a second prompt.
keys 'fn cube(x: [..]) -> [..] {' Enter
see '^\.\.\.> *$'
keys '  return x * x * x' Enter '}' Enter
see '^fn cube$'

# Ctrl-C inside a block gives it up.
keys 'sum(1 +' Enter
see '^\.\.\.> *$'
keys C-c
keys '6 * 7 * 2' Enter
see '^84$'

# Ctrl-C on an evaluation leaves the session; the limit would let this one run for a while.
keys 'dim N = 13_000, R = 12_000' Enter
see '^R = 12000'
keys 'y = normal[N](1.0)' Enter
see '^y : f32'
keys 'repeat R { y = tanh(y) }' Enter
sleep 0.3
keys 'sum(y)' Enter
sleep 0.5
keys C-c
see 'interrupted'
keys '11 * 11' Enter
see '^121$'

# Ctrl-D ends it; the next session has the history.
keys C-d
see 'shell> *$'
start
keys Up
see '^cad> 11 \* 11'
keys C-c
keys ':quit' Enter
sleep 0.3
keys 'echo status $?' Enter
see '^status 0$'

# A history that cannot be written is no error.
keys "XDG_STATE_HOME=/proc/none NO_COLOR=1 '$binary' repl" Enter
see '^cad> *$'
keys '5 + 5' Enter
see '^10$'
echo ok
