"""move.py ROOT [--dry]: puts the walls up in the tree ROOT. Replayable on any state of the old layout."""
import sys,os,re,subprocess
sys.path.insert(0,'layout')
import rooms
root=sys.argv[1]; dry='--dry' in sys.argv
os.chdir(root)
git=lambda *a: subprocess.check_output(['git',*a],text=True)
files=git('ls-files').split('\n')
files=[f for f in files if f]
new={}
for f in files:
    r=rooms.room(f)
    if r and r!=f: new[f]=r
dup=[v for v in set(new.values()) if list(new.values()).count(v)>1]
assert not dup,dup
left=[f for f in files if re.match(r'(src/(app|core|transport|inner|outer|quant|report)|kernels)/[^/]+\.(h|cpp|cu)$',f) and f not in new and not f.startswith('kernels/')]
print('left at the top:',left)
print(len(new),'files move')
if dry: sys.exit()
for o,n in new.items():
    os.makedirs(os.path.dirname(n),exist_ok=True)
    os.rename(o,n)
inc={}  # include spelling
def spelling(p): 
    if p.startswith('src/'): return p[4:]
    if p.startswith('tests/'): return p[6:]
    return p
for o,n in new.items(): inc[spelling(o)]=spelling(n)
TEXT={'.h','.cpp','.cu','.cuh','.py','.md','.txt','.cmake','.in','.sh','.toml','.yml','.supp',''}
tok=re.compile(r'(?<![\w/.-])((?:src/|kernels/|core/|transport/|inner/|outer/|quant/|report/|app/)[\w./-]*?[\w-]+\.(?:h|cpp|cu|cmake|md|html|css|js|toml|jsonl|in))\b')
rel=re.compile(r'((?:\.\./)+)((?:src|kernels)/[\w./-]+\.\w+)')
def sub(text):
    def r(m):
        t=m.group(1)
        if t in new: return new[t]
        if t in inc: return inc[t]
        if t.startswith('src/') is False and ('src/'+t) in new: return spelling(new['src/'+t])
        return t
    text=re.sub(r'(?<=/)((?:src|kernels)/[\w./-]+\.(?:h|cpp|cu|cmake|md|html|css|js|toml|jsonl|in))\b',lambda m:new.get(m.group(1),m.group(1)),text)
    return tok.sub(r,text)
changed=[]
now=[new.get(f,f) for f in files]
for f in now:
    if f.startswith(('fuzz/corpus','bench/results','experiments/')) and not f.endswith(('.md','.txt','.py')): continue
    if os.path.splitext(f)[1] not in TEXT or not os.path.isfile(f) or os.path.islink(f): continue
    try: t=open(f,encoding='utf-8').read()
    except UnicodeDecodeError: continue
    t2=sub(t)
    # wildcard spellings such as `transport/link_*` stay for hand work
    if f.endswith('CMakeLists.txt'):
        d=os.path.dirname(f)
        def lists(m):
            name=m.group(1); p=os.path.normpath(os.path.join(d,name))
            if p in new:
                q=new[p]
                if q.startswith(d+'/'): return os.path.relpath(q,d)
                return '@GONE@'
            return name
        t2=re.sub(r'(?<![\w/.$}{-])([\w/-]+\.(?:cpp|cu|h|cmake))\b',lists,t2)
        t2=re.sub(r'^[ \t]*@GONE@[ \t]*\n','',t2,flags=re.M); t2=re.sub(r'[ \t]*@GONE@','',t2)
    if t2!=t: open(f,'w',encoding='utf-8').write(t2); changed.append(f)
print(len(changed),'files rewritten')
open('moved-code.txt','w').write('\n'.join(f for f in set(changed)|set(new.values()) if f.endswith(('.h','.cpp','.cu'))))
