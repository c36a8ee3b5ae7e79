import sys,os,re,subprocess,collections
sys.path.insert(0,'layout')
import rooms
root=sys.argv[1]
os.chdir(root)
files=[f for f in subprocess.check_output(['git','ls-files'],text=True).split() if re.match(r'(src|kernels|include)/',f)]
new={f:(rooms.room(f) or f) for f in files}
count=collections.Counter(os.path.dirname(v) for v in new.values())
for k,v in sorted(count.items()): print(v,k)
arrows=collections.defaultdict(list)
for f in files:
    if not f.endswith(('.h','.cpp','.cu')): continue
    for m in re.finditer(r'^\s*#\s*include\s*"([^"]+)"',open(f).read(),re.M):
        h=m.group(1)
        p=('src/'+h) if os.path.exists('src/'+h) else h
        if p not in new: continue
        a,b=os.path.dirname(new[f]),os.path.dirname(new[p])
        if a!=b: arrows[a,b].append((f,p))
mods=sys.argv[2:] 
for (a,b),l in sorted(arrows.items()):
    if (b,a) in arrows and len(arrows[b,a])>=len(l):
        print('BACK',a,'->',b,len(l),'vs',len(arrows[b,a]),[f'{os.path.basename(x)}->{os.path.basename(y)}' for x,y in l][:8])
