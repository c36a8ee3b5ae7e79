import os,re,subprocess,sys
os.chdir(sys.argv[1])
g=lambda *a: subprocess.check_output(['git',*a],text=True)
mv={}
for f in g('ls-files','tests').split():
    d,b=os.path.split(f)
    if d=='tests/core' and re.match(r'(config_|experiment_|link_trace_|send_cap_|links_file_|ways_file_)',b): mv[f]='tests/config/'+b
    if d=='tests/inner/data': mv[f]='tests/data/'+b
    if d=='tests/app':
        if re.match(r'(json_line|run_directory|run_log|status_board)_test',b): mv[f]='tests/record/'+b
        if re.match(r'(join_|hub_|late_site_|lone_training_|going_back_|outer_healing_|outer_words_|owner_shares_|return_pace_|run_board_|saved_pieces_|site_|state_source_)',b): mv[f]='tests/session/'+b
    if f=='tests/report/tensorboard_test.cpp' : pass
for a,b in mv.items():
    os.makedirs(os.path.dirname(b),exist_ok=True); subprocess.check_call(['git','mv',a,b])
pat=re.compile('|'.join(sorted((re.escape(a) for a in mv),key=len,reverse=True)))
inc={a[6:]:b[6:] for a,b in mv.items() if a.endswith('.h')}
ip=re.compile(r'#include "('+'|'.join(map(re.escape,inc))+')"')
for f in g('ls-files').split('\n'):
    if not f or f.startswith(('layout','fuzz/corpus')) or not f.endswith(('.h','.cpp','.md','.py','.txt','.cmake','.cu')) and 'scripts/' not in f: continue
    if not os.path.isfile(f): continue
    try: t=open(f).read()
    except UnicodeDecodeError: continue
    n=pat.sub(lambda m:mv[m.group(0)],t)
    n=ip.sub(lambda m:f'#include "{inc[m.group(1)]}"',n)
    if n!=t: open(f,'w').write(n); print('rewrote',f)
