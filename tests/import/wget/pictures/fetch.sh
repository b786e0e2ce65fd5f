# Pictures of two sites. Written by hand.
wget -r -l 3 -H -D example.com,.cdn.example.net --exclude-domains=shop.example.com \
  -A jpg,png,'photo-[0-9]*.gif' -R 'thumb*' -e robots=off -Q 500m -nd -i urls.txt
