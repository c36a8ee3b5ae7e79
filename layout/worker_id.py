import sys,re,os,subprocess
root=sys.argv[1]; sys.path.insert(0,root+'/tests/architecture')
from check_architecture import blank_out
os.chdir(root)
n=0; fs=[]
for f in subprocess.check_output(['git','ls-files'],text=True).split():
    if not f.endswith(('.h','.cpp','.cu')) or 'rank_watch' in f or f.startswith('fuzz/corpus'): continue
    t=open(f).read()
    if not re.search(r'\bRank\b',t): continue
    code=blank_out(t)
    assert len(code)==len(t)
    out=[];last=0
    for m in re.finditer(r'\bRank(Tag)?\b',code):
        out.append(t[last:m.start()]); out.append('WorkerId'+(m.group(1) or '')); last=m.end(); n+=1
    if out:
        out.append(t[last:]); open(f,'w').write(''.join(out)); fs.append(f)
print(n,len(fs))
for i in range(0,len(fs),60): subprocess.check_call(['clang-format','-i',*fs[i:i+60]])
